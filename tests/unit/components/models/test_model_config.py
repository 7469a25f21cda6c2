"""Tests of the `model` section, which describes a network or names a run_fn, but not both."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.models.config import ModelConfig


def test_run_fn_excludes_other_model_fields():
    with pytest.raises(ValidationError, match="so hidden, kind would have no effect"):
        ModelConfig.model_validate({"run_fn": "mine.run_fn", "hidden": [8], "kind": "mlp"})


def test_build_function_excludes_other_model_fields():
    for field in ({"hidden": [8]}, {"run_fn": "mine.run_fn"}):
        for function in ("build", "train"):
            with pytest.raises(ValidationError, match="builds the model itself, so"):
                ModelConfig.model_validate({function: f"mine.{function}", **field})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("mine.more.run_fn", "mine.more.run_fn"),
        ("path/to/module.py", "path/to/module.py:run_fn"),
        ("/path.d/module.py:train", "/path.d/module.py:train"),
    ],
)
def test_function_is_named_by_import_path_or_by_file(text: str, path: str):
    assert ModelConfig.model_validate({"run_fn": text}).run_fn == path
    assert ModelConfig.model_validate({"run_fn": path}).run_fn == path


@pytest.mark.parametrize("text", ["run_fn", "module.py:", "module.py:a.b", "gs://bucket/module.py", "a/b.run_fn"])
def test_invalid_import_path_is_rejected(text: str):
    with pytest.raises(ValidationError, match=r"expected an import path such as mypackage.mymodule.run_fn, or a file"):
        ModelConfig.model_validate({"run_fn": text})


@pytest.mark.parametrize(
    "section", [{"run_fn": "mine.run_fn"}, {"build": "mine.py"}, {"train": "mine.py"}, {"kind": "mlp", "hidden": [8]}]
)
def test_model_config_round_trips_through_json(section: dict[str, object]):
    config = ModelConfig.model_validate(section)
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"huber_delta": 2.0}, "huber_delta: expected loss huber, received none; remove huber_delta"),
        ({"loss": "huber", "quantiles": [0.5]}, "quantiles: expected loss quantile, received huber; remove quantiles"),
        ({"loss": "quantile", "quantiles": [0.9, 0.1]}, r"expected ascending numbers between 0 and 1, received \[0.9"),
        ({"loss": "quantile", "quantiles": [0.5, 1.0]}, "expected ascending numbers between 0 and 1"),
        ({"loss": "quantile", "kind": "gbt"}, "expected one of poisson, focal, which trees are trained with in gbt"),
        ({"loss": "listwise"}, "needs the column of the lists, as in list_column: query; received none"),
        ({"list_column": "query"}, "list_column: expected loss listwise, received none"),
        ({"loss": "listwise", "list_column": "query", "kind": "gbt"}, "trees are trained with in gbt"),
        ({"loss": "huber", "run_fn": "mine.run_fn"}, "so loss would have no effect"),
    ],
)
def test_invalid_combination_with_a_loss_is_rejected(section: dict[str, object], message: str):
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(section)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kind": "final_mlp", "hidden": [8, 6], "heads": 4}, "expected a divisor of 6, received 4"),
        ({"kind": "mlp", "first_gate": "user"}, "first_gate: expected kind final_mlp, received mlp"),
        ({"kind": "mmoe", "levels": 3}, "levels: expected kind ple, received mmoe"),
        ({"kind": "mmoe", "label_experts": 3}, "label_experts: expected kind ple, received mmoe"),
    ],
)
def test_invalid_option_of_a_recommendation_model_is_rejected(section: dict[str, object], message: str):
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(section)


def test_custom_network_can_be_trained_with_any_loss():
    section = {"build": "mine.build", "loss": "quantile", "quantiles": [0.2, 0.8]}
    assert ModelConfig.model_validate(section).quantiles == (0.2, 0.8)
