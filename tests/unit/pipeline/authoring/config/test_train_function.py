"""Tests for configs with `model.train`: settings without effect, and features that the function does not receive."""

from __future__ import annotations

import pytest

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.authoring.plans import training_plan
from tests.support.data import people

TRAIN = "model={train: mine.py}"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("people")
    data = people.write(folder / "people.csv", people.rows(10))
    return str(people.write_config(folder / "people.yaml", data, training={}))


def test_function_is_a_valid_model(config: str) -> None:
    assignments = ("training.max_minutes=2", "training.validation=0.2", "training.calibration=isotonic")
    plan = training_plan(load(config, assignments=(TRAIN, *assignments)).config)
    assert plan.model.train == "mine.py:train"
    assert plan.model.function == plan.model.train
    assert plan.model.list_code() == ("mine.py",)
    assert plan.model.holds_out
    assert not plan.model.has_network


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("training.steps=7", "training.steps: has no effect with model.train"),
        ("training.strategy={kind: mirrored}", "training.strategy: has no effect with model.train"),
        ("training.checkpoint.keep=2", "training.checkpoint: has no effect with model.train"),
        ("training.class_weights=balanced", "training.class_weights: has no effect with model.train"),
        ("training.folds=3", "training.folds: has no effect with model.train"),
        ("model={train: mine.py, hidden: [8]}", "train builds the model itself, so hidden would have no effect"),
        ("model={train: mine.py, loss: focal}", "train builds the model itself, so loss would have no effect"),
        ("model={train: mine.py, build: mine.py}", "build builds the model itself, so train would have no effect"),
        ("features.columns.city={image: {height: 8, width: 8}}", "model.train receives numbers and ids, no images"),
        ("tune={learning_rate: {choice: [0.1, 0.2]}}", "a model.train of your own does its own tuning"),
        ("edge=[{}]", "expected a network of model.kind or model.build, received a model.train of your own"),
        (
            "edge=[{kind: distilled, student: {train: mine.py}}]",
            "student: expected a network, received trees, a run_fn or train",
        ),
        ("data.task=retrieval", "requires two_tower, ease or item_knn, received a model.train of your own"),
    ],
)
def test_setting_that_does_not_fit_is_refused(config: str, assignment: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(config, assignments=(TRAIN, assignment))
    assert message in str(raised.value)


def test_several_labels_are_refused(config: str) -> None:
    labels = "data={path: people.csv, labels: {rich: income == '>50K', busy: hours > 40}, task: binary}"
    with pytest.raises(InputError, match=r"does not go together with data.labels: code of your own computes one label"):
        load(config, assignments=(TRAIN, labels))
