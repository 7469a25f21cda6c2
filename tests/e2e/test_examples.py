"""The other shipped examples and a new table, each up to a pushed model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.data import people
from tests.support.fakes.expected_rpc_errors import assert_undisturbed
from tests.support.runs.command import Ended, Runs, command

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


def assert_pushed(ended: Ended) -> None:
    assert ended.exit_code == 0, ended.out or ended.err
    result = ended.result
    assert (result["state"], result["verdict"]) == ("done", "blessed")
    assert (Path(result["pushed"]) / "saved_model.pb").is_file()
    assert result["rows_read"] == sum(result["rows"].values())


def tasks(runs: Runs) -> set[str]:
    """Return the tasks of a cluster whose logs the Trainer has kept."""
    return {log.stem for log in runs.model_run.glob("logs/*.log")}


@pytest.mark.slow
def test_clicks_train_beside_parameter_servers(clicks: Runs):
    assert_pushed(clicks.first)
    assert clicks.first.result["rows_read"] == 12_000
    assert clicks.first.result["metrics"]["auc"] > 0.6
    assert_undisturbed(clicks.first.result["training"], 20, clicks.model_run / "logs")
    assert tasks(clicks) == {"chief-0", "worker-0", "worker-1", "ps-0", "ps-1"}
    [collisions] = clicks.first.result["hash_collisions"]
    assert (collisions["feature"], collisions["buckets"], collisions["sampled"]) == ("user_hash", 200_000, 1)
    assert 0 < collisions["used"] < collisions["values"] < 12_000


@pytest.mark.slow
def test_plan_has_the_size_of_each_table_with_the_vocabularies_of_the_last_run(clicks: Runs):
    planned = json.loads(command("plan", *clicks.config, "--output", str(clicks.output.parent), "--json").out)
    graph = next((clicks.output / "artifacts" / "Transform" / "transform_graph").iterdir())
    [sites] = graph.glob("transform_fn/assets/vocabulary_site_vocab")
    sizes = {(table["feature"], table["kind"]): table for table in planned["tables"]}
    # The vocabulary's entries, 100 IDs for unknown sites, and an ID for a missing site.
    site = sizes["site_vocab", "embedding"]
    assert (site["rows"], site["most"]) == (len(sites.read_bytes().splitlines()) + 101, False)
    assert (sizes["user_hash", "weights"]["rows"], sizes["user_hash", "weights"]["width"]) == (200_001, 1)
    ps, chief = planned["table_memory"]
    assert (ps["task"], ps["count"], chief["task"]) == ("ps", 2, "chief")
    total = sum(table["bytes"] for table in planned["tables"])
    assert total / 2 < ps["bytes"] < total
    assert chief["bytes"] == total // 3


@pytest.mark.slow
def test_digits_train_in_one_process(digits: Runs):
    assert_pushed(digits.first)
    result = digits.first.result
    assert ("steps" in result["training"], tasks(digits)) == (False, set())
    assert result["rows_read"] == 1_797
    assert result["metrics"]["accuracy"] >= 0.93
    assert {entry["slice"]["label"] for entry in result["slices"]} == set("0123456789")


def test_table_of_ones_own_without_a_schema(small: Runs):
    assert_pushed(small.first)
    result = small.first.result
    assert result["rows_read"] == 500
    assert result["metrics"]["auc"] > 0.9
    assert {entry["slice"]["city"] for entry in result["slices"]} == {"Łódź", "Paris", "New; York"}


def test_number_to_predict(small: Runs):
    ended = small.again(*(word for field in people.REGRESSION for word in ("--set", field)))
    assert_pushed(ended)
    # The rows are split by all columns but the label, so another label makes other splits.
    assert not ended.nodes("cached")
    assert ended.result["metrics"]["mean_squared_error"] < 1
    assert set(ended.result["metrics"]) == {"mean_squared_error", "mean_absolute_error"}


@pytest.mark.slow
def test_whole_groups_are_held_out_of_the_training(small: Runs):
    split = "data.split={by: group, columns: [hours], train: 2, eval: 1}"
    stopping = ("training.early_stopping=2", "training.checkpoint.every_steps=20")
    ended = small.again(*(word for field in (split, *stopping) for word in ("--set", field)))
    assert_pushed(ended)
    runs = (small.output / "artifacts" / "Trainer" / "model_run").iterdir()
    newest = max(runs, key=lambda path: int(path.name))
    assert list(newest.glob("checkpoints/best-*.index")), "the checkpoint that was exported"
    assert list(newest.glob("validation/*"))
