"""User-defined nodes in a run: outputs that later nodes read, the cache, the records, failures."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import Ended, command

pytestmark = pytest.mark.e2e

MODULE = "tests.support.data.own_components"


def config(folder: Path, word: str = "found", least: float = 1) -> tuple[str, ...]:
    """Return the arguments of a config with two nodes; the second reads the first and precedes Transform."""
    nodes: list[dict[str, Any]] = [
        {
            "component": f"{MODULE}.Measure",
            "inputs": {"statistics": "StatisticsGen.statistics"},
            "parameters": {"word": word},
        },
        {
            "component": f"{MODULE}.check_size",
            "inputs": {"size": "Measure.size", "text": "Measure.text"},
            "parameters": {"least": least},
            "before": "Transform",
        },
    ]
    table = folder / "people.csv"
    if not table.exists():
        people.write(table, people.rows())
    keep = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    notify = [{"command": [sys.executable, "-c", keep, str(folder / "notified")]}]
    written = people.write_config(folder / "people.yaml", table, nodes=nodes, notify=notify)
    return ("--config", str(written), "--output", str(folder / "out"))


def run(arguments: tuple[str, ...], to: str = "check_size") -> Ended:
    return command("--local", "--json", *arguments, "--to", to)


def test_second_node_reads_the_first_and_both_are_cached_recorded_and_drawn(tmp_path: Path) -> None:
    arguments = config(tmp_path)
    first = run(arguments)
    assert (first.exit_code, first.result["error"]) == (0, None)
    assert first.nodes("done") == {"ExampleGen", "StatisticsGen", "Measure", "check_size"}

    again = run(arguments)
    assert again.nodes("cached") == {"ExampleGen", "StatisticsGen", "Measure", "check_size"}

    store = Store(tmp_path / "out/people/metadata.db")
    [size] = store.artifacts(first.result["run"], "Integer")
    assert int(Path(size.uri).read_text()) > 1000
    page = Path(first.result["report"]).read_text()
    assert '<text class="name"' in page
    assert ">check_size<" in page
    lineage = command("store", "lineage", str(size.id), *arguments).out
    assert "Measure" in lineage
    assert "StatisticsGen" in lineage

    planned = json.loads(command("plan", *arguments, "--json").out)["nodes"]
    will = {node["id"]: (node["will"], node["inputs"]) for node in planned}
    assert will["check_size"] == ("cached", ["Measure.size", "Measure.text"])
    assert will["Transform"][0] == "run"

    changed_config = config(tmp_path, word="other")
    ended = run(changed_config)
    assert ended.nodes("done") == {"Measure", "check_size"}
    why = command("runs", "why-not-cached", "Measure", "--run", ended.result["run"], *changed_config).out
    assert "word" in why
    assert "other" in why


@pytest.mark.parametrize(
    ("word", "exit_code", "headline"),
    [("found", 2, "own_components.py:"), ("rejected", 3, "expected 1e+09 bytes, received")],
)
def test_failure_ends_the_run_before_the_node_that_it_precedes_and_is_notified(
    tmp_path: Path, word: str, exit_code: int, headline: str
) -> None:
    ended = run(config(tmp_path, word, least=1e9), to="Transform")
    assert (ended.exit_code, ended.states["check_size"]) == (exit_code, "failed")
    assert ended.states["Transform"] == "not run"
    assert headline in ended.result["error"]["headline"]
    note = json.loads((tmp_path / "notified").read_text())
    assert (note["event"], note["run"]) == ("failed" if exit_code == 2 else "rejected", ended.result["run"])
    assert note["details"]["nodes"] == ["check_size"]
    if exit_code == 2:
        assert "check_size failed: ValueError: expected 1e+09 bytes, received" in ended.result["error"]["headline"]


def test_failure_of_a_node_that_an_orchestrator_runs_is_notified(tmp_path: Path) -> None:
    arguments = config(tmp_path)
    file = tmp_path / "people.pb"
    assert command("node", "compile", *arguments, "--into", str(file)).exit_code == 0
    (tmp_path / "people.csv").unlink()
    ended = command("node", "run", "--pipeline", str(file), "--node", "ExampleGen", "--run-id", "r1")
    assert ended.exit_code == 1
    note = json.loads((tmp_path / "notified").read_text())
    assert (note["event"], note["pipeline"], note["run"]) == ("failed", "people", "r1")
    assert note["details"]["nodes"] == ["ExampleGen"]
