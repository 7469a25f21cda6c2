"""Tests for `runner.py explain`: the recorded importance of columns, which is read without TensorFlow, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runs.command import command, light_command
from tests.support.runs.report_runs import write_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("explain")
    write_run(folder)
    return str(folder / "metadata.db")


def test_importance_is_printed(store: str):
    ended = light_command("explain", "--store", store)
    assert (ended.exit_code, ended.err) == (0, "")
    head, titles, fare, company = (line.rstrip() for line in ended.out.splitlines())
    assert head == "run r1, overall: binary_crossentropy 0.25 in 4 rows"
    assert titles.split("  ")[0] == "column"
    assert fare.split()[:3] == ["fare", "1.0000", "(0.5000"]
    assert fare.endswith("0.2500 (0.1250 to 0.3750)        0.0625")
    assert company.endswith("-0.1250 (-0.5000 to 0.2500)")


def test_importance_in_a_slice_is_printed(store: str):
    out = light_command("explain", "--store", store, "--slice", "company = Blue").out
    assert out.startswith("run r1, company = Blue: binary_crossentropy 0.5 in 2 rows")
    assert "share" not in out
    record = json.loads(light_command("explain", "r1", "--store", store, "--slice", "company = Blue", "--json").out)
    assert (record["run"], record["metric"], record["slice"]) == ("r1", "binary_crossentropy", {"company": "Blue"})
    assert record["columns"][0]["loss"] == {"value": 0.5, "interval": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slice", "company = Blu"], "nothing was measured for 'company = Blu'; did you mean 'company = Blue'?"),
        (["--row", "[1]"], "row 1: expected a JSON object of columns and values, received '[1]'"),
        (["--rows", "absent.jsonl"], "--rows: absent.jsonl cannot be read: No such file or directory"),
        (["--model", "taxi@7"], "--model: expected a config with it, received --store"),
        (["r9"], "there is no run 'r9'"),
    ],
)
def test_invalid_arguments_are_reported(store: str, arguments: list[str], message: str):
    ended = light_command("explain", *arguments, "--store", store)
    assert ended.exit_code == 2
    assert message in ended.err


def test_missing_importance_or_model_is_reported(store: str, tmp_path: Path):
    write_run(tmp_path)
    (tmp_path / "r1" / "evaluation" / "importance.json").unlink()
    ended = light_command("explain", "--store", str(tmp_path / "metadata.db"))
    assert ended.exit_code == 2
    assert "run r1 has no importance of columns: it was not recorded" in ended.err
    ended = command("explain", "--store", store, "--row", "{}")
    assert ended.exit_code == 2
    assert "expected a SavedModel, received a folder that cannot be loaded" in ended.err
