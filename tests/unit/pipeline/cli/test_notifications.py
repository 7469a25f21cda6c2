"""Tests for the hooks of `notify`: their content, their events, and warnings about failing hooks without secrets."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.base.errors import GateError, InputError, MachineError, PipelineError
from components.evaluator.verdict import Check
from components.serving.check_result import ServingCheckResult
from pipeline.authoring.config.notify import NotifyConfig
from pipeline.cli import notifications
from pipeline.cli.main import main
from pipeline.cli.notifications import Notification
from pipeline.core.records import NodeOutcome, NodeResult, RunResult, RunSummary, make_refused_result
from tests.support.data.small_config import load_small
from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.runs.pushed import push

NOTE = Notification("drift", "taxi", "r1", "taxi: span 4 has drifted", {"span": 4}, "2026-11-26T04:00:00+00:00")
RECEIVED = {
    "event": "drift",
    "pipeline": "taxi",
    "run": "r1",
    "text": "taxi: span 4 has drifted",
    "details": {"span": 4},
    "time": "2026-11-26T04:00:00+00:00",
}
FAILED_CHECK = Check("auc", {"city": "Paris"}, "at least 0.7", 0.5, None, 90, passed=False, why=None)
PASSED_CHECK = replace(FAILED_CHECK, passed=True)


@pytest.fixture
def requests() -> list[Any]:
    return []


@pytest.fixture
def url(requests: list[Any]) -> Iterator[str]:
    """Yield the URL of a service that records requests. It responds to paths below /refused with status 403."""

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            requests.append((self.path, self.headers["Content-Type"], json.loads(self.body())))
            self.respond({}, 403 if self.path.startswith("/refused") else 200)

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def make_append_command(file: Path) -> list[str]:
    """Return a command that appends its standard input to a file."""
    return [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))", str(file)]


def make_hook(**fields: Any) -> NotifyConfig:
    return NotifyConfig.model_validate(fields)


def read_notifications(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_webhook_and_command_receive_the_same(
    url: str, requests: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOOK", f"{url}/services/secret")
    other_events = make_hook(command=make_append_command(tmp_path / "others"), events=["failed", "rollback"])
    notifications.send(
        [make_hook(webhook="HOOK"), make_hook(command=make_append_command(tmp_path / "all")), other_events], NOTE
    )
    assert requests == [("/services/secret", "application/json", RECEIVED)]
    assert read_notifications(tmp_path / "all") == [RECEIVED]
    assert not (tmp_path / "others").exists()
    assert capfd.readouterr() == ("", "")


def test_failing_hook_is_a_warning_without_the_url(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket() as closed_socket, socket.socket() as silent_socket:
        closed_socket.bind(("127.0.0.1", 0))
        silent_socket.bind(("127.0.0.1", 0))
        silent_socket.listen()
        values = {
            "REFUSED": f"{url}/refused/secret",
            "CLOSED": f"http://127.0.0.1:{closed_socket.getsockname()[1]}/secret",
            "SILENT": f"http://127.0.0.1:{silent_socket.getsockname()[1]}/secret",
            "FILE": "file:///secret",
            "BLANK": "http://127.0.0.1/a secret",
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        hooks = [make_hook(webhook=name, timeout_seconds=0.2) for name in (*values, "UNSET")]
        sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
        hooks += [
            make_hook(command=f"{sys.executable} -c 'import sys; print(1); sys.exit(3)'"),
            make_hook(command=sleeper, timeout_seconds=0.2),
            make_hook(command=["no-such-program"]),
            make_hook(command=make_append_command(tmp_path / "last")),
        ]
        notifications.send(hooks, NOTE)
    out, err = capfd.readouterr()
    assert out == ""
    # The standard output of a command may appear anywhere between the warnings.
    warnings = [line for line in err.splitlines() if line != "1"]
    assert len(warnings) < len(err.splitlines())
    assert warnings == [
        "warning: notify.0: the webhook in REFUSED answers with HTTP status 403",
        "warning: notify.1: the webhook in CLOSED cannot be reached: Connection refused",
        warnings[2],
        "warning: notify.3: the environment variable FILE contains no URL that begins with https:// or http://",
        "warning: notify.4: it failed: InvalidURL",
        "warning: notify.5: the environment variable UNSET is not set",
        f"warning: notify.6: {sys.executable} ended with exit code 3",
        f"warning: notify.7: {sys.executable} was killed after 0.2 s",
        "warning: notify.8: it failed: FileNotFoundError",
    ]
    assert warnings[2].startswith("warning: notify.2: ")
    assert "secret" not in err
    assert read_notifications(tmp_path / "last") == [RECEIVED]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{webhook: 'https://hooks.example.com/secret'}", "expected the name of an environment variable that contains"),
        ("{}", "expected either webhook or command, received none"),
        ("{webhook: HOOK, command: date}", "received both"),
        ("{webhook: HOOK, events: [faild]}", "did you mean 'failed'?"),
        ("{command: []}", "command"),
    ],
)
def test_invalid_section_is_rejected(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        load_small(tmp_path, f"notify: [{section}]")
    assert message in str(raised.value)
    assert "secret" not in str(raised.value).replace("no place for secrets", "")


def make_result(state: str, error: PipelineError | None, summary: RunSummary, *nodes: tuple[str, str]) -> RunResult:
    results = tuple(NodeResult(name, node_state, 1.0, 1.0, 1.0, None, None, None) for name, node_state in nodes)
    return RunResult("r7", "taxi", state, 1.0, 0.0, results, error, 1, summary, None, Path("report.html"))


@pytest.mark.parametrize(
    ("result", "event", "text", "details"),
    [
        (
            make_result(
                "failed", MachineError("no disk", "buy"), RunSummary(), ("Trainer", "failed"), ("Pusher", "not run")
            ),
            "failed",
            "run r7 of taxi failed: no disk",
            {"nodes": ["Trainer"], "checks": [], "report": "report.html"},
        ),
        (
            make_result("rejected", GateError("too few rows", "add"), RunSummary(), ("DataGate", "failed")),
            "rejected",
            "run r7 of taxi rejected: too few rows",
            {"nodes": ["DataGate"], "verdict": "not evaluated"},
        ),
        (
            make_result("rejected", None, RunSummary(verdict="not blessed", checks=(PASSED_CHECK, FAILED_CHECK))),
            "rejected",
            f"run r7 of taxi rejected: the model is not blessed: {FAILED_CHECK}",
            {"nodes": [], "checks": [str(FAILED_CHECK)], "error": None, "serving": None},
        ),
        (
            make_result("rejected", None, RunSummary(serving=ServingCheckResult("s", passed=False, why="slow"))),
            "rejected",
            "run r7 of taxi rejected: the serving check refuses the model: slow",
            {"serving": "the serving check refuses the model: slow"},
        ),
        (
            make_result("done", None, RunSummary(verdict="blessed", metrics={"auc": 0.75}, awaits_approval=True)),
            "approval",
            "run r7 of taxi has ended, and its model is not pushed yet; it waits for an approval: python runner.py "
            "models approve r7 --by NAME --note TEXT",
            {"metrics": {"auc": 0.75}},
        ),
        (
            make_refused_result(InputError("no rows", "add"), pipeline="taxi"),
            "failed",
            "a run of taxi failed: no rows",
            {},
        ),
    ],
)
def test_failed_rejected_and_waiting_runs_are_reported(
    tmp_path: Path, result: RunResult, event: str, text: str, details: dict[str, Any]
) -> None:
    notifications.send_run([make_hook(command=make_append_command(tmp_path / "got"))], result)
    [note] = read_notifications(tmp_path / "got")
    assert (note["event"], note["text"], note["run"]) == (event, text, result.run or None)
    assert {name: note["details"][name] for name in details} == details


@pytest.mark.parametrize("state", ["done", "interrupted"])
def test_successful_and_interrupted_runs_are_not_reported(tmp_path: Path, state: str) -> None:
    notifications.send_run(
        [make_hook(command=make_append_command(tmp_path / "got"))], make_result(state, None, RunSummary())
    )
    assert read_notifications(tmp_path / "got") == []


def test_failed_and_rejected_nodes_of_an_orchestrator_are_reported(tmp_path: Path) -> None:
    hooks = [make_hook(command=make_append_command(tmp_path / "got"))]
    not_blessed = json.loads(json.dumps(RunSummary(verdict="not blessed", checks=(FAILED_CHECK,)).to_json()))
    failed_check = RunSummary(verdict="blessed", serving=ServingCheckResult("s", passed=False, why="slow")).to_json()
    for node, outcome, record in (
        ("Trainer", NodeOutcome("failed", error=MachineError("no disk", "buy")), {}),
        ("DataGate", NodeOutcome("failed", error=GateError("too few rows", "add")), {}),
        ("Evaluator", NodeOutcome("done"), not_blessed),
        ("InfraValidator", NodeOutcome("done"), failed_check),
        # These outcomes are not reported, or were already reported.
        ("Evaluator", NodeOutcome("done", earlier=True), not_blessed),
        ("Pusher", NodeOutcome("skipped"), not_blessed),
        ("Evaluator", NodeOutcome("done"), failed_check),
    ):
        notifications.send_node(hooks, "taxi", "r7", node, outcome, record)
    assert [
        (note["event"], note["text"].partition(" of taxi ")[2]) for note in read_notifications(tmp_path / "got")
    ] == [
        ("failed", "failed: no disk"),
        ("rejected", "rejected: too few rows"),
        ("rejected", f"rejected: the model is not blessed: {FAILED_CHECK}"),
        ("rejected", "rejected: the serving check refuses the model: slow"),
    ]


def test_rollback_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        push(tmp_path / "pushed", number)
    notify = [{"command": make_append_command(tmp_path / "got")}]
    load_small(tmp_path, f"push: {{directory: {tmp_path / 'pushed'}}}", f"notify: {json.dumps(notify)}")
    arguments = ("--config", str(tmp_path / "small.yaml"))
    for number in ("1", "2"):
        assert main(["models", "promote", number, *arguments]) == 0
    assert main(["models", "rollback", "--reason", "too slow", *arguments]) == 0
    assert "stable 1" in capsys.readouterr().out
    [note] = read_notifications(tmp_path / "got")
    assert (note["event"], note["pipeline"], note["run"]) == ("rollback", "small", None)
    assert note["text"].startswith("small was rolled back from version 2 to 1 by ")
    assert note["text"].endswith(": too slow")
    assert {name: note["details"][name] for name in ("from", "to", "reason")} == {
        "from": 2,
        "to": 1,
        "reason": "too slow",
    }
