"""User-defined functions by import path: TFX's unchanged examples, and functions that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.runs.command import OWN_CODE, SUPPORT, Runs

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("own")]


def assert_pushed(runs: Runs) -> None:
    ended = runs.first
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.out or ended.err
    assert ended.states["InfraValidator"] == "done"
    assert (Path(ended.result["pushed"]) / "saved_model.pb").is_file()


# test_module_file_for_stock_tfx_runs_as_it_is is the fast one, on both release lines.
@pytest.mark.slow
@pytest.mark.both_lines
def test_stock_taxi_module_runs_as_it_is(stock_taxi: Runs):
    assert_pushed(stock_taxi)
    (schema,) = stock_taxi.output.glob("artifacts/SchemaGen/schema/*/schema.pbtxt")
    (tract,) = re.findall(r'name: "pickup_census_tract".*?\n}', schema.read_text(), re.DOTALL)
    assert "type: INT" in tract, "one row has a value, in one of the splits"
    assert "DEPRECATED" not in tract


@pytest.mark.slow
@pytest.mark.both_lines
def test_stock_penguin_module_runs_as_it_is(stock_penguin: Runs):
    assert_pushed(stock_penguin)
    assert stock_penguin.first.result["rows"] == {"train": 234, "eval": 100}
    assert stock_penguin.first.result["metrics"]["accuracy"] > 0.8


@pytest.mark.both_lines
def test_module_file_for_stock_tfx_runs_as_it_is(files: Runs):
    assert (files.first.exit_code, files.first.result["verdict"]) == (0, "blessed"), files.first.out or files.first.err
    again = files.again("--to", "Trainer")
    assert again.nodes("cached") >= {"Transform", "Trainer"}


def test_network_of_the_users_own_is_trained_and_exported_as_ours_are(built: Runs):
    assert (built.first.exit_code, built.first.result["verdict"]) == (0, "blessed"), built.first.out or built.first.err
    assert (Path(built.first.result["pushed"]) / "saved_model.pb").is_file()
    assert "of_the_user" in Path(built.first.result["nodes"]["Trainer"]["log"]).read_text(), "the network's summary"


def test_build_function_that_raises_is_blamed_by_its_line(built: Runs, tmp_path: Path):
    assert built.first.exit_code == 0, built.first.out or built.first.err
    deed = tmp_path / "deed"
    deed.write_text("raise")
    arguments = ("--from", "Trainer", "--to", "Trainer", "--set", "training.steps=7")
    ended = built.again(*arguments, environment={"OWN_CODE_DEED": str(deed)})
    assert (ended.exit_code, ended.states["Trainer"]) == (2, "failed")
    file = re.escape(str(SUPPORT / "data" / "own_code.py"))
    assert re.fullmatch(
        rf"{file}:\d+: {file}:build failed: ValueError: no such luck", ended.result["error"]["headline"]
    )


@pytest.mark.slow
def test_run_goes_up_to_a_node_and_another_one_from_the_next(own: Runs):
    assert (own.first.exit_code, own.first.result["verdict"]) == (0, "not evaluated")
    assert own.first.nodes("skipped") == {"Trainer", "LatestBlessedModel", "Evaluator", "Pusher"}
    lower = own.again("--from", "Trainer", environment=OWN_CODE)
    assert (lower.exit_code, lower.result["verdict"]) == (0, "blessed")
    assert lower.nodes("done") == {"Trainer", "LatestBlessedModel", "Evaluator", "Pusher"}
    assert lower.result["rows_read"] == 500
    assert lower.result["pushed_version"] in own.pushed


@pytest.mark.parametrize(
    ("function", "node", "arguments"),
    [
        ("preprocessing_fn", "Transform", ("--from", "Transform", "--to", "Transform", "--no-cache")),
        ("run_fn", "Trainer", ("--set", "training.steps=7")),
    ],
)
def test_function_that_raises_is_blamed_by_its_line(
    own: Runs, tmp_path: Path, function: str, node: str, arguments: tuple[str, ...]
):
    assert own.first.exit_code == 0, own.first.out or own.first.err
    deed = tmp_path / "deed"
    deed.write_text("raise")
    ended = own.again(*arguments, environment={**OWN_CODE, "OWN_CODE_DEED": str(deed)})
    assert (ended.exit_code, ended.result["state"], ended.states[node]) == (2, "failed", "failed")
    error = ended.result["error"]
    file = re.escape(str(SUPPORT / "data" / "own_code.py"))
    failed = f"own_code.{function} failed: ValueError: no such luck"
    assert re.fullmatch(rf"{file}:\d+: {re.escape(failed)}", error["headline"])
    assert "traceback" in error["remedy"]
    log = Path(ended.result["nodes"][node]["log"]).read_text()
    assert "Traceback" in log
    assert 'raise ValueError("no such luck")' in log
