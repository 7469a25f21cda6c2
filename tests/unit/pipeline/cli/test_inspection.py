"""Tests for the commands that read metadata, without TensorFlow, TFX or ML Metadata's library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pipeline.core import run_locks
from tests.support.runs.command import Ended, command, light_command
from tests.support.runs.stored_history import History


def run_command(history: History, *arguments: str) -> Ended:
    """Run a command on the store of a history, and check that it succeeds."""
    ended = light_command(*arguments, "--store", str(history.location))
    assert (ended.exit_code, ended.err) == (0, "")
    return ended


def parse_lines(ended: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in ended.out.splitlines()]


def test_runs_are_listed(history: History):
    lines = run_command(history, "runs").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["r3", "toy", "done"],
        ["r2", "toy", "done"],
        ["r1", "toy", "done"],
    ]
    assert lines[2].split()[-2:] == ["blessed", "12"]
    [newest] = parse_lines(run_command(history, "runs", "--json", "--limit", "1"))
    assert (newest["run"], newest["verdict"], newest["spans"]) == ("r3", "not blessed", [3])
    assert run_command(history, "runs", "--state", "failed").out == "no run matches\n"


def test_run_and_node_are_shown(history: History):
    history.write_record(
        "r2", state="done", started=1.0, updated=3.0, nodes={"Trainer": {"state": "done", "cpu_seconds": 12.5}}
    )
    failed = {"node": "Trainer", "attempt": 1, "ended": 2, "state": "failed", "seconds": 1}
    (history.logs / "r2" / "attempts.jsonl").write_text(
        json.dumps({**failed, "error": {"headline": "[b]no[/b]"}}) + "\n"
    )
    overview = run_command(history, "runs", "show", "r2").out
    assert overview.startswith("run r2 of toy: done, ")
    [trainer] = [line.split() for line in overview.splitlines() if line.startswith("Trainer")]
    assert trainer[1] == "done"
    assert "12.5" in trainer
    assert f"examples {history.number('rows 1')}" in " ".join(trainer)
    node = run_command(history, "runs", "show", "r2", "--node", "Trainer").out
    assert "custom_config.plan.learning_rate  0.2" in node
    assert "[b]no[/b]" in node, "square brackets are no markup"
    [latest] = parse_lines(run_command(history, "runs", "show", "--json"))
    assert latest["run"] == "r3"


def test_artifacts_are_listed(history: History):
    models = parse_lines(run_command(history, "store", "artifacts", "--type", "Model", "--json"))
    assert [(model["id"], model["node"], model["run"]) for model in models] == [
        (history.number(f"model {number}"), "Trainer", f"r{number}") for number in (3, 2, 1)
    ]
    run_lines = run_command(history, "store", "artifacts", "--run", "r2", "--type", "Examples").out.splitlines()
    assert run_lines[1].split()[:2] == [str(history.number("rows 1")), "Examples"]
    assert "ExampleGen" in run_lines[1]
    assert "r1" in run_lines[1], "made in the first run, and taken from the cache"
    run_words = run_command(history, "store", "artifacts", "--run", "r1").out.split()
    assert all(name in run_words for name in ("Examples", "Model", "ModelBlessing", "PushedModel"))


def test_lineage_is_printed_in_several_formats(history: History):
    tree = run_command(history, "store", "lineage", "12").out
    up, down = tree.split("used by nothing")
    assert down.strip() == ""
    assert up.index("Pusher, run r2") < up.index("Trainer, run r2") < up.index("ExampleGen, run r1")
    assert "code abc" in up
    assert "config of run r2" in up
    [graph] = parse_lines(run_command(history, "store", "lineage", "12", "--format", "json"))
    assert graph["root"] == history.number("pushed 2")
    for language, first in (("dot", "digraph lineage {"), ("mermaid", "flowchart LR")):
        assert run_command(history, "store", "lineage", "12", "--format", language).out.splitlines()[0] == first


def test_runs_are_compared(history: History):
    lines = run_command(history, "runs", "compare", "r1", "r2").out
    assert "training.learning_rate  0.1     0.2" in lines
    assert "version: 11 -> 12" in lines
    [comparison] = parse_lines(run_command(history, "runs", "compare", "r1", "--json"))
    assert (comparison["now"], comparison["rows"]) == ("r3", {"train": [8, 9]})


def test_reason_for_an_execution_is_printed(history: History):
    assert (
        "custom_config.plan.learning_rate  0.1     0.2"
        in run_command(history, "runs", "why-not-cached", "Trainer", "--run", "r2").out
    )
    assert "was cached" in run_command(history, "runs", "why-not-cached", "ExampleGen", "--run", "r2").out
    assert "it has not succeeded before" in run_command(history, "runs", "why-not-cached", "Trainer", "--run", "r1").out


def test_resources_of_a_run_are_a_section_of_the_config(history: History):
    measured = {"state": "done", "seconds": 10.0, "cpu_seconds": 20.0, "peak_memory_mb": 1000.0}
    history.write_record("r3", state="done", started=100.0, updated=120.0, nodes={"Trainer": measured})
    section = yaml.safe_load(run_command(history, "runs", "show", "r3", "--resources").out)
    assert section == {"kubeflow": {"resources": {"Trainer": {"cpu": 2.5, "memory_gb": 2.0}}}}
    refused = light_command("runs", "show", "r1", "--resources", "--store", str(history.location))
    assert (refused.exit_code, "expected a run with a node that ran, received r1" in refused.err) == (2, True)


def test_store_is_exported(history: History, tmp_path: Path):
    target = tmp_path / "all.jsonl"
    assert (
        run_command(history, "store", "export", "--into", str(target)).out
        == f"{target}: {len(target.read_text().splitlines())} lines\n"
    )
    assert run_command(history, "store", "export").out == target.read_text()
    events = parse_lines(run_command(history, "store", "export", "--format", "openlineage"))
    assert {event["eventType"] for event in events} == {"COMPLETE"}
    refused = light_command(
        "store", "export", "--store", str(history.location), "--into", str(tmp_path / "no" / "all.jsonl")
    )
    assert refused.exit_code == 1
    assert "cannot be written" in refused.err


def test_gc_lists_artifacts_and_removes_them_only_with_delete(history: History, tmp_path: Path):
    # The pipeline `toy` keeps its store in the folder `toy`, so make the folder of the history available there.
    output = tmp_path / "out"
    output.mkdir()
    (output / "toy").symlink_to(tmp_path)
    arguments = ("store", "gc", "--config", "configs/taxi.yaml", "--set", "pipeline.name=toy", "--output", str(output))
    refused = command(*arguments, "--keep", "0")
    assert refused.exit_code == 2
    assert "--keep: expected at least 1 run, received 0" in refused.err
    remote = command(*arguments, "--set", "runtime.artifacts=gs://bucket/toy")
    assert remote.exit_code == 2
    assert "runtime.artifacts is gs://bucket/toy" in remote.err
    nothing = command(*arguments)
    assert (nothing.exit_code, nothing.out) == (0, "all artifacts are needed\n")

    history.writer.execution("r4", "ExampleGen")
    names = {history.number(name): name for name in history.artifacts}
    unused = {"model 3", "blessing 3", "rows 3", "pushed 1", "pushed 2"}
    listed = command(*arguments, "--keep", "1")
    assert f"{len(unused)} artifacts, 0.0 MB: not needed; --delete removes them" in listed.out
    assert all(Path(artifact.uri).is_dir() for artifact in history.artifacts.values())
    # A run that has just started holds the lock, but is not in the store yet.
    with run_locks.artifacts_in_use(output / "toy"):
        active = command(*arguments, "--keep", "1", "--delete")
    assert active.exit_code == 2
    assert "expected no active run, received one that is in progress" in active.err
    latest = command(*arguments, "--keep", "1", "--delete", "--json").result
    assert {names[artifact["id"]] for artifact in latest["artifacts"]} == unused
    assert {name for name, artifact in history.artifacts.items() if not Path(artifact.uri).is_dir()} == unused
    assert command(*arguments, "--keep", "1").out == "all artifacts are needed\n"


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (("runs", "show", "r9"), "there is no run 'r9'"),
        (("runs", "show", "r"), "the ids of several runs begin with 'r': r3, r2, r1"),
        (("runs", "show", "r1", "--node", "Traner"), "run r1 has no node 'Traner'; did you mean 'Trainer'?"),
        (("store", "artifacts", "--type", "Modell"), "there is no artifact of type 'Modell'; did you mean 'Model'?"),
        (("store", "lineage", "nothing"), "received 'nothing'"),
        (("store", "lineage", "999"), "there is no artifact 999"),
        (("runs", "diff-data", "r1", "r2"), "run r1 has no statistics"),
        (("runs", "why-not-cached", "Trainr"), "did you mean 'Trainer'?"),
        (("runs", "--since", "yesterday"), "--since: expected a time such as 2026-11-22"),
    ],
)
def test_unknown_names_are_rejected_with_a_remedy(history: History, arguments: tuple[str, ...], headline: str):
    ended = light_command(*arguments, "--store", str(history.location))
    assert (ended.exit_code, ended.out) == (2, "")
    assert headline in ended.err
    assert "remedy: " in ended.err


@pytest.mark.parametrize("verb", ["runs", "runs show", "store artifacts", "store export", "store gc"])
def test_missing_store_is_reported(verb: str, tmp_path: Path):
    ended = command(*verb.split(), "--output", str(tmp_path))
    assert (ended.exit_code, ended.out) == (2, "")
    assert f"expected --config, or a run in the folder {tmp_path}, found neither" in ended.err
    assert "name the folder of the runs with --output DIR" in ended.err
    ended = command(*verb.split(), "--config", "configs/taxi.yaml", "--output", str(tmp_path))
    assert (ended.exit_code, ended.out) == (2, "")
    assert "nothing has run yet: there is no metadata store" in ended.err
    assert "with --output DIR" in ended.err


def test_file_that_is_not_a_store_is_reported(tmp_path: Path):
    (tmp_path / "metadata.db").write_bytes(b"not a database, but long enough to look like a file with a header" * 20)
    ended = light_command("runs", "--store", str(tmp_path / "metadata.db"))
    assert ended.exit_code == 1
    assert "cannot be opened" in ended.err


def test_control_characters_in_names_are_escaped(history: History):
    history.writer.execution(
        "r4\x1b[2J", "Node\n[red]", "FAILED", [history.writer.artifact("Model", "/a\x1b[31m[bold]b")]
    )
    for arguments in (
        ("runs",),
        (
            "runs",
            "show",
        ),
        (
            "store",
            "artifacts",
        ),
        ("runs", "why-not-cached", "Node\n[red]"),
    ):
        out = run_command(history, *arguments).out
        assert "\x1b" not in out
    assert "/a\\x1b[31m[bold]b" in run_command(history, "store", "artifacts").out
    assert "r4\\x1b[2J" in run_command(history, "runs").out
