"""Served requests against the training rows of the version that has answered: real server, real log."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import people
import pytest
from command import Ended, Runs, command
from serving import serving

pytestmark = [pytest.mark.e2e, pytest.mark.both_lines]

ROWS = 600
Row = dict[str, Any]


def sent(row: Row) -> Row:
    """A row as the signature `raw` takes it."""
    age = float("nan") if row["age"] == "NA" else row["age"]
    return {"age": age, "hours": row["hours"], "city": row["city"]}


def log(pushed: str, folder: Path, change: Callable[[Row], Row]) -> Path:
    """The log of a server that has answered new people's requests to a version, each changed."""
    version = Path(pushed)
    # Other tests push into the same folder.
    shutil.copytree(version, folder / "people" / version.name)
    models = ("--model_name=people", f"--model_base_path={folder / 'people'}")
    with serving(folder, *models, f"--request_log={folder / 'log'}") as server:
        server.wait("people", int(version.name))
        for row in people.rows(ROWS, seed=11):
            body = {"signature_name": "raw", "instances": [sent(change(row))]}
            status, answer = server.ask("POST", "/v1/models/people:predict", body)
            assert status == 200, answer
        assert server.stop() == 0
    return folder / "log"


def monitor(runs: Runs, requests: Path, *arguments: str) -> Ended:
    return command("monitor", *shared(runs), "--requests", str(requests), *arguments)


def shared(runs: Runs) -> tuple[str, ...]:
    return (*runs.config, "--output", str(runs.output.parent))


def test_same_people_have_not_drifted(small: Runs, tmp_path: Path):
    requests = log(small.first.result["pushed"], tmp_path, lambda row: row)
    ended = monitor(small, requests)
    assert ended.exit_code == 0, ended.out + ended.err
    version = Path(small.first.result["pushed"]).name
    assert f"version {version}, 600 rows (600 compared) against training (" in ended.out
    assert "no drift" in ended.out
    few = monitor(small, requests, "--set", "monitor.least_rows=601")
    assert (few.exit_code, "not judged" in few.out) == (0, True)

    # The same requests a day and a half earlier: the window before.
    [file] = requests.iterdir()
    _, time, rest = file.name.split("-")
    shutil.copy(file, requests / f"requests-{int(time) - 129_600 * 10**9}-{rest}")
    both = monitor(small, requests, "--json").result["judgements"]
    assert [each["reference"] for each in both] == ["training", "the window before"]
    assert [each["reference_rows"] for each in both][1] == both[1]["rows"] == ROWS
    assert all(column["distance"] == 0 for column in both[1]["columns"])
    assert both[1]["findings"] == []


def test_drifted_columns_are_named_and_no_others(small: Runs, tmp_path: Path):
    requests = log(
        small.first.result["pushed"],
        tmp_path,
        lambda row: {**row, "hours": row["hours"] + 30, "city": row["city"] and "Oslo"},
    )
    keep = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    notify = json.dumps([{"command": [sys.executable, "-c", keep, str(tmp_path / "notified")]}])
    prometheus = ("--prometheus", str(tmp_path / "metrics.prom"))
    ended = monitor(small, requests, "--json", *prometheus, "--set", f"notify={notify}")
    assert ended.exit_code == 3, ended.err
    [judged] = ended.result["judgements"]
    found = {(each["column"], each["what"]) for each in judged["findings"]}
    # More hours make other predictions.
    assert found == {("hours", "distance"), ("city", "distance"), ("city", "new values"), ("probability", "distance")}
    note = json.loads((tmp_path / "notified").read_text())
    assert (note["event"], note["run"], set(note["details"]["columns"])) == ("drift", None, {each for each, _ in found})
    assert note["details"]["version"] == judged["version"]
    metrics = (tmp_path / "metrics.prom").read_text()
    version = Path(small.first.result["pushed"]).name
    assert f'tfx_pipeline_monitor_drifted{{column="hours",reference="training",version="{version}"}} 1.0' in metrics
    assert f'tfx_pipeline_monitor_drifted{{column="age",reference="training",version="{version}"}} 0.0' in metrics


def test_what_cannot_be_compared_is_named(small: Runs, tmp_path: Path):
    ended = monitor(small, tmp_path)
    assert (ended.exit_code, "expected files of a request log, received none" in ended.err) == (2, True)
    ended = command("monitor", *shared(small))
    assert (ended.exit_code, "expected a section monitor, or --requests" in ended.err) == (2, True)


@pytest.mark.slow
def test_run_is_due_when_requests_have_drifted(tmp_path: Path):
    def comes(span: int) -> None:
        people.write(tmp_path / str(span) / "people.csv", people.rows(500, seed=span))

    comes(1)
    config = people.write_config(
        tmp_path / "people.yaml",
        tmp_path / "{SPAN}" / "people.csv",
        schedule={"start": "2026-01-01", "only_if": "drift", "drift": 0.9},
        monitor={"requests": str(tmp_path / "served" / "log")},
    )
    arguments = ("--config", str(config), "--output", str(tmp_path / "out"))
    run = command("--local", *arguments, "--json")
    assert run.exit_code == 0, run.err
    comes(2)
    assert command("due", *arguments).exit_code == 3
    log(run.result["pushed"], tmp_path / "served", lambda row: {**row, "hours": row["hours"] + 30})
    due = command("due", *arguments)
    assert due.exit_code == 0
    assert due.out.startswith("due: requests have drifted, and span 2 is new: hours ")
