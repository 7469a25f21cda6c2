"""Tests of approvals: what is published and recorded, what is refused, two at once, and one that is killed."""

from __future__ import annotations

import getpass
import hashlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.main import main
from pipeline.core.metadata import approvals
from tests.support.runs.command import ROOT
from tests.support.runs.waiting_run import FILES, WaitingRun, write_waiting_run

WHO = ("--by", "Ana Diaz", "--note", "looked at the slices")


@pytest.fixture
def waiting(tmp_path: Path) -> WaitingRun:
    return write_waiting_run(tmp_path)


def approve(waiting: WaitingRun, *arguments: str) -> int:
    return main(["models", "approve", waiting.run, *(arguments or WHO), *waiting.config])


def read_manifest(version: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((version / "manifest.json").read_text())
    return manifest


def read_approvals(waiting: WaitingRun) -> list[dict[str, str]]:
    """Return the properties of the approvals that ML Metadata has, read by SQLite alone."""
    query = (
        "SELECT e.id, p.name, COALESCE(p.string_value, p.int_value) FROM Execution e JOIN Type t ON t.id = e.type_id"
        " JOIN ExecutionProperty p ON p.execution_id = e.id WHERE t.name = 'Approval' ORDER BY e.id"
    )
    executions: dict[int, dict[str, str]] = {}
    with closing(sqlite3.connect(waiting.output / "metadata.db")) as database:
        for number, name, value in database.execute(query):
            executions.setdefault(number, {})[name] = str(value)
    return list(executions.values())


def test_approved_model_is_published_and_its_approver_is_recorded(
    waiting: WaitingRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = datetime.now(timezone.utc).replace(microsecond=0)
    assert approve(waiting) == 0
    [version] = waiting.versions
    out, err = capsys.readouterr()
    approval = read_manifest(version)["approval"]
    assert before <= datetime.fromisoformat(approval["at"]) <= datetime.now(timezone.utc)
    expected = {"by": "Ana Diaz", "note": "looked at the slices", "account": getpass.getuser(), "at": approval["at"]}
    assert approval == expected
    head = f"{waiting.pushed}: version {version.name} approved by Ana Diaz at {approval['at']}"
    assert (out, err) == (f"{head}; stable {version.name}\n", "")
    for path, content in FILES.items():
        assert (version / path).read_bytes() == content
        assert read_manifest(version)["files"][path]["sha256"] == hashlib.sha256(content).hexdigest()
    [change] = json.loads((waiting.pushed / "registry.json").read_text())["history"]
    assert (change["action"], change["by"], change["reason"]) == ("promote", "Ana Diaz", "looked at the slices")

    [recorded] = read_approvals(waiting)
    assert recorded["approved_by"] == "Ana Diaz"
    assert (recorded["approved_at"], recorded["approval_note"]) == (approval["at"], "looked at the slices")
    assert (recorded["pushed_version"], recorded["pushed_destination"]) == (version.name, str(version))
    executions = {execution.node: execution for execution in waiting.store.executions("r1")}
    inputs = {event.key for event in waiting.store.events([executions["Approval"].id])}
    assert inputs == {"model", "model_blessing", "infra_blessing", "pushed_model"}
    # The artifact stays the single output of the Pusher, so that later nodes find it.
    [pushed] = waiting.store.outputs(executions["Pusher"])["pushed_model"]
    assert (pushed.properties["pushed"], pushed.properties["approval"]) == (1, "approved")

    assert main(["store", "lineage", version.name, *waiting.config]) == 0
    lineage = capsys.readouterr().out
    assert f"(pushed version {version.name}, approved by Ana Diaz)" in lineage
    assert "pushed_model of Approval, run r1" in lineage


def test_list_shows_models_that_wait_and_then_their_approver(
    waiting: WaitingRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", *waiting.config]) == 0
    empty, line = capsys.readouterr().out.splitlines()
    assert empty == f"{waiting.pushed}: no version was pushed yet"
    assert line == (
        "run r1, 2026-11-21T16:24:01, auc 0.93, binary_accuracy 0.9: it waits for an approval: "
        "python runner.py models approve r1 --by NAME --note TEXT"
    )
    assert main(["models", "--json", *waiting.config]) == 0
    [model] = json.loads(capsys.readouterr().out)["pending"]
    assert (model["run"], model["metrics"]["auc"]) == ("r1", 0.93)
    assert approve(waiting, "--check") == 0
    assert capsys.readouterr().out == "run r1: the model waits for an approval\n"
    assert approve(waiting) == 0
    capsys.readouterr()
    assert main(["models", *waiting.config]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["approved", "by"]
    assert row.rstrip().endswith("Ana Diaz")
    assert main(["models", "--json", *waiting.config]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert (listing["pending"], listing["versions"][0]["approval"]["by"]) == ([], "Ana Diaz")
    assert approve(waiting, "--check") == 3
    assert "which Ana Diaz has approved" in capsys.readouterr().err


def test_stage_of_an_approved_version_follows_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = write_waiting_run(tmp_path, push={"stage_on_push": "none"})
    assert approve(waiting) == 0
    assert capsys.readouterr().out.endswith("; no stable version\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "", "--note", "fine"), "--by: expected 1 to 100 characters on one line, received an empty text"),
        (("--by", " \t", "--note", "fine"), "--by: expected 1 to 100 characters on one line, received an empty text"),
        (("--by", "Ana", "--note", ""), "--note: expected 1 to 500 characters on one line, received an empty text"),
        (
            ("--by", "Ana", "--note", "x" * 501),
            "--note: expected 1 to 500 characters on one line, received 501",
        ),
        (("--by", "Ana\x1b[31m", "--note", "fine"), "--by: expected 1 to 100 characters on one line, received control"),
        (("--by", "Ana"), "expected both --by NAME and --note TEXT"),
        (("--check", *WHO), "expected --by NAME --note TEXT, or only --check"),
    ],
)
def test_approval_without_a_name_or_a_reason_is_refused(
    waiting: WaitingRun, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert approve(waiting, *arguments) == 2
    assert message in capsys.readouterr().err
    assert (waiting.versions, read_approvals(waiting)) == ([], [])


@pytest.mark.parametrize(
    ("name", "message"),
    [("r9", "there is no run 'r9'"), ("17", "there is no run '17'"), ("latest", "received latest")],
)
def test_unknown_run_is_refused(
    waiting: WaitingRun, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    assert main(["models", "approve", name, *WHO, *waiting.config]) == 2
    assert message in capsys.readouterr().err
    assert waiting.versions == []


@pytest.mark.parametrize(
    ("run", "code", "message"),
    [
        ({"blessed": 0}, 3, "received a model that the Evaluator did not bless"),
        ({"served": 0}, 3, "received a model that the serving check did not bless"),
        ({"push": {"approval": "none"}}, 2, "expected a model that waits for an approval"),
    ],
)
def test_model_that_does_not_wait_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: dict[str, Any], code: int, message: str
) -> None:
    waiting = write_waiting_run(tmp_path, **run)
    assert approve(waiting) == code
    assert approve(waiting, "--check") == code
    assert capsys.readouterr().err.count(message) == 2
    assert (waiting.versions, read_approvals(waiting)) == ([], [])


@pytest.mark.parametrize("approved_before", [False, True])
def test_model_whose_files_have_changed_is_refused(
    waiting: WaitingRun, capsys: pytest.CaptureFixture[str], approved_before: bool
) -> None:
    if approved_before:
        assert approve(waiting) == 0
    (waiting.model / "variables" / "variables.index").write_bytes(b"Values")
    assert approve(waiting) == 3
    assert "expected the model that was evaluated" in capsys.readouterr().err
    assert len(waiting.versions) == len(read_approvals(waiting)) == int(approved_before)


def test_model_that_was_removed_is_refused(waiting: WaitingRun, capsys: pytest.CaptureFixture[str]) -> None:
    (waiting.model / "saved_model.pb").unlink()
    (waiting.model / "variables" / "variables.index").unlink()
    (waiting.model / "variables").rmdir()
    waiting.model.rmdir()
    assert approve(waiting) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err


def test_second_approval_changes_nothing(waiting: WaitingRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert approve(waiting) == 0
    capsys.readouterr()
    files = {path: path.read_bytes() for path in waiting.pushed.rglob("*") if path.is_file()}
    assert approve(waiting, "--by", "Eve", "--note", "me too") == 0
    assert f"version {waiting.versions[0].name} was approved before, by Ana Diaz" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in waiting.pushed.rglob("*") if path.is_file()} == files
    assert [approval["approved_by"] for approval in read_approvals(waiting)] == ["Ana Diaz"]


@pytest.mark.extended
def test_two_approvals_at_once_publish_once(waiting: WaitingRun) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "runner.py", "models", "approve", "r1", "--by", name, "--note", "fine", *waiting.config],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("Ana", "Ben")
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sorted("was approved before" in out for out, _ in outputs) == [False, True]
    [version] = waiting.versions
    [approval] = read_approvals(waiting)
    assert approval["approved_by"] == read_manifest(version)["approval"]["by"]
    assert all(f"by {approval['approved_by']} " in out for out, _ in outputs)


@pytest.mark.extended
@pytest.mark.parametrize("step", ["manifest", "rename", "stage", "record"])
def test_approval_that_was_killed_is_finished_by_the_next_one(
    waiting: WaitingRun, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("models", "approve", waiting.run, "--by", "Ana", "--note", "fine", *waiting.config)
    program = ROOT / "tests" / "support" / "programs" / "killed_approval.py"
    ended = subprocess.run(
        [sys.executable, program, step, *arguments], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert ended.returncode == -9
    is_visible = step in ("stage", "record")
    assert len(waiting.versions) == int(is_visible)
    assert read_approvals(waiting) == []
    if is_visible:
        # A version is visible only with its approver.
        assert read_manifest(waiting.versions[0])["approval"]["by"] == "Ana"
    assert approve(waiting, "--by", "Ben", "--note", "again") == 0
    assert main(["models", "verify", *waiting.config]) == 0
    [version] = waiting.versions
    expected = "Ana" if is_visible else "Ben"
    [approval] = read_approvals(waiting)
    assert approval["approved_by"] == read_manifest(version)["approval"]["by"] == expected
    assert json.loads((waiting.pushed / "registry.json").read_text())["stable"] == int(version.name)
    assert [path.name for path in waiting.pushed.glob(".push-*")] == []


def test_interrupted_approval_does_not_undo_a_later_promotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    first = write_waiting_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(approvals, "record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            approve(first)
    second = write_waiting_run(tmp_path, "r2")
    assert approve(second) == 0
    stable = json.loads((second.pushed / "registry.json").read_text())["stable"]
    capsys.readouterr()
    assert main(["models", "approve", "r1", *WHO, *first.config]) == 0
    assert capsys.readouterr().out.endswith(f"; stable {stable}\n")
    assert len(second.versions) == 2
