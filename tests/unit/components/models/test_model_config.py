"""The `model` section: a network of ours, or a run_fn of the user's, and never half of each."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.models.config import ModelConfig


def test_run_fn_excludes_other_model_fields():
    with pytest.raises(ValidationError, match="so hidden, kind would have no effect"):
        ModelConfig.model_validate({"run_fn": "mine.run_fn", "hidden": [8], "kind": "mlp"})


def test_build_function_excludes_other_model_fields():
    for other in ({"hidden": [8]}, {"run_fn": "mine.run_fn"}):
        with pytest.raises(ValidationError, match="builds the model itself, so"):
            ModelConfig.model_validate({"build": "mine.build", **other})


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("mine.more.run_fn", "mine.more.run_fn"),
        ("path/to/module.py", "path/to/module.py:run_fn"),
        ("/path.d/module.py:train", "/path.d/module.py:train"),
    ],
)
def test_function_is_named_by_import_path_or_by_file(given: str, path: str):
    assert ModelConfig.model_validate({"run_fn": given}).run_fn == path
    assert ModelConfig.model_validate({"run_fn": path}).run_fn == path


@pytest.mark.parametrize("given", ["run_fn", "module.py:", "module.py:a.b", "gs://bucket/module.py", "a/b.run_fn"])
def test_invalid_import_path_is_rejected(given: str):
    with pytest.raises(ValidationError, match=r"expected an import path such as mypackage.mymodule.run_fn, or a file"):
        ModelConfig.model_validate({"run_fn": given})


@pytest.mark.parametrize("section", [{"run_fn": "mine.run_fn"}, {"build": "mine.py"}, {"kind": "mlp", "hidden": [8]}])
def test_model_config_round_trips_through_json(section: dict[str, object]):
    config = ModelConfig.model_validate(section)
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config
