"""A trained forest predicts what YDF's own model predicts, and its size comes from the validation part."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import ydf
from tolerances import float32_sum, rounding

from components.base.errors import InputError
from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.models.config import ModelConfig
from components.models.forest import TreeInput
from components.trainer import forest_learner
from components.trainer.forest_learner import Fold, ForestLearner, Rows, Shape, predict, read
from components.trainer.losses import LabelScale, focal, regression_loss
from components.trainer.prediction_head import PredictionHead
from components.trainer.validation_part import Mask

ROWS = 1000
FOREST = float32_sum(40, largest=0.5)
"""Tolerance of the sum of the leaves of 40 trees."""
MEAN = rounding(8)
"""Tolerance of float64 means of float32 losses."""
PLAN = FeaturePlan(features=FeaturesConfig.model_validate({"columns": {"x": "z_score"}}), label="y", task="regression")
INPUTS = [TreeInput("x", "number"), TreeInput("word", "category"), TreeInput("words", "words", 0)]


def head(task: str, **options: Any) -> PredictionHead:
    losses = {
        "binary": lambda label, logits: tf.nn.sigmoid_cross_entropy_with_logits(
            tf.cast(label, tf.float32), logits[:, 0]
        ),
        "multiclass": lambda label, logits: tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits),
        "regression": lambda label, logits: tf.square((label - 5) / 2 - logits[:, 0]),
    }
    return PredictionHead(
        outputs=4 if task == "multiclass" else 1,
        loss=losses[task],
        join=lambda logits: tf.reduce_mean(logits, axis=1),
        metrics=(),
        outputs_by_name=lambda logits: {},
        scale=(5.0, 2.0) if task == "regression" else None,
        **options,
    )


def rows(task: str, seed: int = 0, count: int = ROWS) -> Rows:
    """Rows whose label depends on each feature; class 2 of a multiclass label has no rows."""
    random = np.random.default_rng(seed)
    x = random.normal(size=count).astype(np.float32)
    word, words = random.integers(0, 40, count), random.integers(0, 30, (count, 3))
    score = x + (word % 3 == 0) + 2 * (words == 7).any(axis=1) + random.normal(size=count) * 0.3
    label = {
        "binary": (score > 0.5).astype(np.int64),
        "multiclass": np.array([0, 1, 3])[np.digitize(score, [0, 1])],
        "regression": score.astype(np.float32) * 2 + 5,
    }[task]
    return Rows({"x": x, "word": word, "words": words}, label)


def joined(one: Rows, other: Rows) -> Rows:
    features = {name: np.concatenate([each, other.features[name]]) for name, each in one.features.items()}
    weight = None if one.weight is None or other.weight is None else np.concatenate([one.weight, other.weight])
    return Rows(features, np.concatenate([one.label, other.label]), weight)


def held_out(given: Rows, validation: Rows) -> tuple[Rows, list[Mask]]:
    """All rows, and which of them are the validation part."""
    rows = joined(given, validation)
    return rows, [np.arange(len(rows.label)) >= len(given.label)]


def learner(task: str, **config: Any) -> ForestLearner:
    return ForestLearner(ModelConfig(kind="gbt", **config), head(task), INPUTS, seed=1)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """YDF's own models, in the order in which they are trained."""
    trained: list[Any] = []
    train = ydf.GradientBoostedTreesLearner.train

    def recorded(*given: Any, **more: Any) -> Any:
        trained.append(train(*given, **more))
        return trained[-1]

    monkeypatch.setattr(ydf.GradientBoostedTreesLearner, "train", recorded)
    return trained


@pytest.mark.parametrize(
    ("task", "exact", "oblique"),
    [
        ("binary", 10**6, False),
        ("binary", 10**6, True),
        ("binary", 10, False),
        ("binary", 10, True),
        pytest.param("multiclass", 10**6, True, marks=pytest.mark.extended),
        ("regression", 10, False),
    ],
)
def test_exported_forest_predicts_the_same_as_ydf(
    task: str, exact: int, oblique: bool, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest_learner, "_EXACT", exact)
    given, others = rows(task), rows(task, seed=1)
    found = learner(task, depth=5, trees=40)
    selected = found.select(*held_out(given, given))
    trees = found.refit(selected._replace(shape=selected.shape._replace(oblique=oblique)), given)
    assert (trees.columns.shape[1] > 1) == oblique
    logits = predict(trees, others.features)
    theirs = models[-1].predict(found._create_dataset(trees.inputs, others))
    if task == "binary":
        ours = tf.sigmoid(logits)[:, 0]
    elif task == "multiclass":
        ours = tf.nn.softmax(logits).numpy()
        assert ours[:, 2].max() < 1e-4, "a class that no row has"
        ours = ours[:, [0, 1, 3]]
    else:
        ours = logits[:, 0]
    FOREST.assert_close(ours, theirs)
    assert found.loss(others, logits) < {"binary": 0.3, "multiclass": 0.5, "regression": 0.3}[task]


@pytest.mark.parametrize("loss", ["poisson", "focal"])
def test_forest_is_trained_with_the_loss_of_the_head(loss: Any, models: list[Any]) -> None:
    given, config = rows("binary"), ModelConfig(kind="gbt", loss=loss, depth=4, trees=40)
    made = head("binary")
    if loss == "poisson":
        given = given._replace(label=np.random.default_rng(2).poisson(1 + 5 * given.label).astype(np.float32))
        of_counts = regression_loss(config, PLAN, LabelScale(ROWS, float(given.label.mean()), 1.0, 0))
        made = dataclasses.replace(made, loss=lambda label, logits: of_counts.loss(label / of_counts.scale[1], logits))
        made = dataclasses.replace(made, scale=of_counts.scale)
    else:
        made = dataclasses.replace(made, loss=focal(made.loss, config.focal_gamma))
    found = ForestLearner(config, made, INPUTS, seed=1)
    selected = found.select(*held_out(given, given))
    trees = found.refit(selected, given)
    logits = predict(trees, given.features)
    theirs = models[-1].predict(found._create_dataset(trees.inputs, given))
    activation = np.exp if loss == "poisson" else lambda values: 1 / (1 + np.exp(-values))
    np.testing.assert_allclose(activation(logits[:, 0]), theirs, rtol=1e-4, atol=1e-5)
    alone = float(tf.reduce_mean(made.losses(tf.constant(given.label), tf.zeros([ROWS, 1]))))
    assert selected.loss < 0.6 * alone


def test_shape_is_that_of_the_lowest_loss() -> None:
    given, validation = rows("binary"), rows("binary", seed=1)
    one = learner("binary", shrinkage=0.3)
    everything, masks = held_out(given, validation)
    found = one.select(everything, masks)
    folds = [Fold(given, validation, masks[0])]
    depths = one._train_shapes([Shape(depth, 2000) for depth in (4, 6, 8)], folds)
    best = min(depths, key=lambda each: each.loss)
    (other,) = one._train_shapes([best.shape._replace(trees=2000, partition="RANDOM")], folds)
    best = min(best, other, key=lambda each: each.loss)
    assert (found.shape, found.loss) == (best.shape, best.loss)
    assert 5 < found.shape.trees < 500
    assert found.loss == MEAN.approx(one.loss(validation, found.logits))


@pytest.mark.extended
def test_each_row_is_judged_by_the_forest_that_has_not_seen_it() -> None:
    given = rows("binary", count=400)
    noise = np.random.default_rng(3).integers(0, 2, 400)
    found = learner("binary", depth=4, shrinkage=0.3)
    fold = np.arange(400) % 4
    selected = found.select(given._replace(label=noise), [fold == number for number in range(4)])
    assert np.log(2) - 0.005 < selected.loss, "what a forest has learned by heart helps in no other row"
    selected = found.select(given, [fold == number for number in range(4)])
    without = found._train_trees(
        selected.shape, [found._choose_ids(each, given.where(fold != 2)) for each in INPUTS], given.where(fold != 2)
    )
    np.testing.assert_array_equal(selected.logits[fold == 2], predict(without, given.where(fold == 2).features))
    assert selected.loss == MEAN.approx(found.loss(given, selected.logits))


@pytest.mark.parametrize("oblique", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_splits_are_oblique_where_a_sum_of_numbers_matters(oblique: bool) -> None:
    inputs = [TreeInput("x", "number", width=6)]
    given, validation = (
        Rows({"x": values}, (values[:, 0] + values[:, 1] * (1 if oblique else 0) > 0).astype(np.int64))
        for values in np.random.default_rng(4).normal(size=(2, ROWS, 6)).astype(np.float32)
    )
    one = ForestLearner(ModelConfig(kind="gbt", depth=4, shrinkage=0.3), head("binary"), inputs, seed=1)
    assert one.select(*held_out(given, validation)).shape.oblique == oblique


@pytest.mark.extended
def test_many_categories_of_noise_are_divided_at_random() -> None:
    random = np.random.default_rng(3)
    given, validation = (
        Rows({**each.features, "word": random.integers(0, 150, ROWS)}, each.label)
        for each in (rows("binary"), rows("binary", seed=1))
    )
    assert learner("binary", shrinkage=0.3).select(*held_out(given, validation)).shape.partition == "RANDOM"


@pytest.mark.extended
def test_of_many_rows_a_sample_decides_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    given, validation = rows("binary"), rows("binary", seed=1)
    shape = learner("binary", shrinkage=0.3).select(*held_out(given.sample(300, seed=1), validation)).shape
    monkeypatch.setattr(forest_learner, "_COMPARED", 300)
    found = learner("binary", shrinkage=0.3).select(*held_out(given, validation))
    assert found.shape[::2] == shape[::2], "depth and partition"
    assert found.shape.trees != shape.trees
    assert len(found.logits) == ROWS


def test_forest_of_noise_is_hardly_more_than_a_constant() -> None:
    random = np.random.default_rng(0)
    noise = [rows("binary", seed)._replace(label=random.integers(0, 2, ROWS)) for seed in (0, 1)]
    selected = learner("binary").select(*held_out(*noise))
    assert selected.loss < np.log(2) + 0.005


def test_words_are_those_that_the_label_depends_on() -> None:
    count = forest_learner._WORDS
    given = rows("binary")
    random = np.random.default_rng(2)
    words = random.integers(1, 500, (ROWS, 3))
    words[given.label == 1, 0] = 123
    found = learner("binary")
    only = found._choose_words(words, given.label)
    assert 123 in only
    assert len(only) == count


def test_rare_and_unknown_ids_are_no_categories() -> None:
    found = learner("binary")._choose_ids(
        INPUTS[1], Rows({"word": np.array([9] * 5 + [3] * 4 + [1] * 7)}, np.zeros(16))
    )
    assert found.ids == (1, 9)


def test_weights_of_the_classes_move_the_predictions() -> None:
    given = rows("binary")
    heavy = ForestLearner(
        ModelConfig(kind="gbt", depth=3, trees=20),
        head("binary", weights=lambda label: tf.where(label > 0, 10.0, 1.0)),
        INPUTS,
        seed=1,
    )
    plain = learner("binary", depth=3, trees=20)
    means = [
        predict(each.refit(each.select(*held_out(given, given)), given), given.features).mean()
        for each in (plain, heavy)
    ]
    assert means[1] > means[0] + 0.5


def test_rows_of_weight_0_change_neither_trees_nor_loss() -> None:
    given, wrong = rows("binary"), rows("binary", seed=2)
    wrong = wrong._replace(label=1 - wrong.label, weight=np.zeros(ROWS, np.float32))
    ones = np.ones(ROWS, np.float32)
    both = joined(given._replace(weight=ones), wrong)
    made = ForestLearner(
        ModelConfig(kind="gbt", depth=3, trees=20), dataclasses.replace(head("binary"), mean_weight=0.5), INPUTS, seed=1
    )
    others = rows("binary", seed=1)._replace(weight=ones)
    selected = made.select(*held_out(both, others))
    alone = learner("binary", depth=3, trees=20).select(*held_out(given, others._replace(weight=None)))
    assert selected.loss == pytest.approx(alone.loss, abs=0.05)
    logits = predict(made.refit(selected, both), both.features)
    assert made.loss(both, logits) == MEAN.approx(made.loss(given, logits[:ROWS]))
    assert len(both.sample(50, seed=1).weight) == 50


def test_same_seed_trains_the_same_forest() -> None:
    given = held_out(rows("binary"), rows("binary", 1))
    one, other = (learner("binary", depth=4, trees=20).select(*given) for _ in range(2))
    np.testing.assert_array_equal(one.logits, other.logits)


def test_rows_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_learner, "_MEMORY", 1e-9)
    batch = ({"x": tf.zeros([1000])}, tf.zeros([1000, 1]))
    with pytest.raises(InputError, match=r"model.kind: a forest is trained on rows in memory; expected at most"):
        read([batch])
