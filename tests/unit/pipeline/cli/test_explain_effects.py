"""Tests for `runner.py explain --unneeded` and `--dependence`: tables, JSON, the change of the config, and errors."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from components.evaluator.dependence import Dependence
from components.evaluator.importance import ColumnSelection, Importance
from tests.support.runs.command import light_command
from tests.support.runs.report_runs import dependence, importance, write_run

CONFIG = """\
data: {path: trips, split: {train: 2, eval: 1}, label: tip, task: binary}
features:
  columns:
    fare: z_score # in dollars
    # The company that owns the car.
    company: {vocab: {size: 10}}
  crosses:
    pair: {columns: [fare, company], buckets: 10}
evaluation:
  thresholds:
    auc: {min: 0.6} # as agreed
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path)
    (tmp_path / "trips.yaml").write_text(CONFIG)
    return tmp_path


def write(folder: Path, name: str, measured: Importance | Dependence) -> None:
    (folder / "r1" / "evaluation" / f"{name}.json").write_text(measured.to_json())


def explain(folder: Path, *arguments: str) -> tuple[int, str, str]:
    ended = light_command("explain", "--store", str(folder / "metadata.db"), *arguments)
    return ended.exit_code, ended.out, ended.err


def test_unneeded_columns_are_printed_with_the_change_of_the_config(folder: Path) -> None:
    config = folder / "trips.yaml"
    code, out, err = explain(folder, "--unneeded", "--config", str(config))
    assert (code, err) == (0, "")
    head, titles, company, day, _, *difference = out.splitlines()
    assert head.startswith("run r1: 1 of 2 columns could be dropped; shuffled together, they increase")
    assert titles.split() == ["column", "proposal", "increase", "of", "binary_crossentropy", "why"]
    assert company.split() == ["company", "drop", "-0.125", "(-0.5", "to", "0.25)", "inside", "the", "noise"]
    assert day.split() == ["day", "keep", "needed"]
    assert config.read_text() == CONFIG
    removed = [line for line in difference if line.startswith("-") and not line.startswith("---")]
    assert removed == [
        "-    company: {vocab: {size: 10}}",
        "-  crosses:",
        "-    pair: {columns: [fare, company], buckets: 10}",
    ]
    assert explain(folder, "--unneeded", "--apply", "--config", str(config))[0] == 0
    # An independent program applies the printed difference.
    (folder / "patched").mkdir()
    patched = folder / "patched" / "trips.yaml"
    patched.write_text(CONFIG)
    text = "\n".join(difference).replace(str(config), "trips.yaml") + "\n"
    apply = ["git", "apply", "-p0", "-"]
    subprocess.run(apply, input=text, text=True, check=True, capture_output=True, cwd=patched.parent)
    assert config.read_text() == patched.read_text() != CONFIG
    assert "# The company that owns the car." in config.read_text()
    expected = yaml.safe_load(CONFIG)
    del expected["features"]["columns"]["company"], expected["features"]["crosses"]
    assert yaml.safe_load(config.read_text()) == expected
    assert "do not contain these columns" in explain(folder, "--unneeded", "--config", str(config))[1]


def test_unneeded_columns_are_printed_as_json(folder: Path) -> None:
    record = json.loads(explain(folder, "--unneeded", "--json")[1])
    assert (record["run"], record["unneeded"], record["limit"], record["change"]) == ("r1", ["company"], 0.5, None)
    assert record["kept"] == {"day": "needed"}
    assert "--config FILE prints the change of the config" in explain(folder, "--unneeded")[1]


def test_without_unneeded_columns_the_config_stays(folder: Path) -> None:
    write(folder, "importance", replace(importance(), selection=ColumnSelection()))
    arguments = ("--unneeded", "--apply", "--config", str(folder / "trips.yaml"))
    code, out, _ = explain(folder, *arguments)
    assert (code, out.splitlines()[0]) == (0, "run r1: 0 of 2 columns could be dropped")
    assert (folder / "trips.yaml").read_text() == CONFIG


def test_config_that_would_not_be_valid_is_refused(folder: Path) -> None:
    text = CONFIG.replace("auc: {min: 0.6}", "auc: {min: 0.6}\n  max_importance: {company: 0.5}")
    (folder / "trips.yaml").write_text(text)
    code, out, err = explain(folder, "--unneeded", "--apply", "--config", str(folder / "trips.yaml"))
    assert (code, out) == (2, "")
    assert "without the columns company, " in err
    assert "'company' is no column of the features" in err
    assert "remedy: remove the columns by hand" in err
    assert (folder / "trips.yaml").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply"], "--apply: expected --unneeded and --config FILE with it"),
        (["--unneeded", "--apply"], "--apply: expected --unneeded and --config FILE with it"),
        (["--dependence", "far"], "nothing was measured for 'far'; did you mean 'fare'?"),
        (["--dependence", "items"], "nothing was measured for 'items', because rows have several values"),
    ],
)
def test_invalid_arguments_are_reported(folder: Path, arguments: list[str], message: str) -> None:
    code, _, err = explain(folder, *arguments)
    assert code == 2
    assert message in err


def test_results_of_earlier_releases_are_reported(folder: Path) -> None:
    write(folder, "importance", replace(importance(), selection=None))
    (folder / "r1" / "evaluation" / "dependence.json").unlink()
    assert "did not look for unneeded columns: an earlier release" in explain(folder, "--unneeded")[2]
    assert "run r1 has no partial dependence: it was not recorded" in explain(folder, "--dependence")[2]


def test_partial_dependence_and_interactions_are_printed(folder: Path) -> None:
    code, out, err = explain(folder, "--dependence")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert lines[0] == ["fare", "mean", "probability", "10", "%", "of", "rows", "90", "%", "of", "rows"]
    assert lines[1:5] == [
        ["1", "0.25", "0.125", "0.375"],
        ["2", "0.375", "0.25", "0.5"],
        ["5", "0.5", "0.375", "0.625"],
        ["(missing)", "0.625", "0.5", "0.75"],
    ]
    assert ["fare,", "company", "0.75", "0.500"] in lines
    assert "items is left out: rows have several values" in out
    out = explain(folder, "--dependence", "company")[1]
    assert out.startswith("company ")
    assert "\nfare " not in out
    record = json.loads(explain(folder, "--dependence", "fare", "--json")[1])
    assert [column["column"] for column in record["columns"]] == ["fare"]
    assert record["columns"][0]["curves"][0]["means"] == [0.25, 0.375, 0.5, 0.625]
    write(folder, "dependence", dependence(classes=(1, 0)))
    assert "mean probability of class 1" in explain(folder, "--dependence", "fare")[1]
