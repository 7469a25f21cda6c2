"""The JSON Schema of the config accepts what `validate` accepts, and rejects mistakes."""

from __future__ import annotations

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.data.shipped_configs import CONFIGS
from tests.support.runs.command import ROOT, light_command

PAGES = ("docs/reference/config-example.md", "docs/how-to/own-nodes.md", "docs/tutorial.md")


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    ended = light_command("schema")
    assert (ended.exit_code, ended.err) == (0, "")
    return jsonschema.Draft202012Validator(json.loads(ended.out))


def read_config(**sections: Any) -> dict[str, Any]:
    return {**yaml.safe_load((ROOT / "configs/taxi.yaml").read_text()), **sections}


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_example_is_valid(validator: jsonschema.Draft202012Validator, file: Path) -> None:
    validator.validate(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("page", PAGES)
def test_sections_in_the_documentation_are_valid(validator: jsonschema.Draft202012Validator, page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        # Keep dates as texts, as in JSON.
        sections = yaml.safe_load(re.sub(r"\b(\d{4}-\d\d-\d\d)\b", r"'\1'", block))
        validator.validate(read_config(**sections))


@pytest.mark.parametrize(
    "ops",
    [
        "z_score",
        {"vocab": {"size": 10}},
        {"z_score": None},
        {"date_parts": ["hour"]},
        {"op": "vocab", "size": 10},
        ["log", {"bucketize": {"buckets": 20}}],
    ],
    ids=str,
)
def test_every_form_of_an_operation_is_valid(validator: jsonschema.Draft202012Validator, ops: Any) -> None:
    validator.validate(read_config(features={"columns": {"fare": ops}}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("features.columns.fare", "zscore"),
        ("features.columns.fare", {"vocab": {"siz": 10}}),
        ("features.columns.fare", {"size": 10}),
        ("features.columns.fare", {"vocab": None, "log": None}),
        ("model.kind", "mpl"),
        ("runtime.engine", "dask"),
        ("evaluation.slices", "payment_type"),
        ("training.step", 100),
    ],
)
def test_mistake_is_invalid(validator: jsonschema.Draft202012Validator, path: str, value: Any) -> None:
    *sections, key = path.split(".")
    config = read_config()
    reduce(lambda section, name: section.setdefault(name, {}), sections, config)[key] = value
    assert not validator.is_valid(config)
