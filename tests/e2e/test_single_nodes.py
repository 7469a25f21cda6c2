"""A config is compiled once, and an orchestrator executes its nodes one by one, a span per run, as in a backfill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.metadata.store import Store
from pipeline.core.nodes import NODES
from pipeline.core.records import NodeOutcome
from tests.support.data import people
from tests.support.runs.command import command
from tests.support.servers.in_fork_server import in_child

pytestmark = pytest.mark.e2e


def run_single(ir: Path, node: str, run: str, span: int) -> NodeOutcome:
    """Return a node, where TFX is imported already."""
    from pipeline.cli.reporting import REPORTING
    from pipeline.orchestration.single_node import NodeJob
    from pipeline.orchestration.single_node import run as run_job

    return run_job(NodeJob(ir.read_bytes(), node, run, REPORTING, span=span))


@pytest.mark.slow
def test_backfill_over_spans(tmp_path: Path):
    for span in (1, 2, 3):
        (tmp_path / "data" / str(span)).mkdir(parents=True)
        people.write(tmp_path / "data" / str(span) / "people.csv", people.rows(300 + span, seed=span))
    config = people.write_config(tmp_path / "people.yaml", tmp_path / "data" / "{SPAN}" / "people.csv")
    shared = ("--config", str(config), "--output", str(tmp_path / "out"))
    compiled = command("node", "compile", *shared, "--into", str(tmp_path / "dags" / "people.pb"))
    assert (compiled.exit_code, compiled.err) == (0, "")
    nodes = [node for node in NODES if node in compiled.out]

    for span in (1, 2):
        run = f"backfill__2026-01-0{span}T00:00:00+00:00"
        for node in nodes:
            outcome = in_child(tmp_path / "log", run_single, tmp_path / "dags" / "people.pb", node, run, span)
            assert (node, outcome.state, outcome.error) == (node, "done", None)

    rows = [json.loads(line) for line in command("runs", *shared, "--json").out.splitlines()]
    assert [row["spans"] for row in rows] == [[2], [1]]
    assert {(row["state"], row["verdict"]) for row in rows} == {("done", "blessed")}
    assert [row["metrics"]["auc"] > 0.7 for row in rows] == [True, True]
    store = Store(tmp_path / "out/people/metadata.db")
    [first, second] = [store.artifacts(row["run"], "Examples")[0] for row in reversed(rows)]
    assert (first.properties["rows_read"], second.properties["rows_read"]) == (301, 302)
    # A local run continues: its newest span is the third, and the baseline is the model of the second.
    local = json.loads(command("--local", *shared, "--json").out)
    assert (local["state"], local["rows_read"]) == ("done", 303)
    assert local["baseline"]

    wrong = command("node", "run", "--pipeline", str(config), "--node", "Trainer", "--run-id", "r")
    assert wrong.exit_code == 2
    assert "expected a compiled pipeline" in wrong.err
