"""Calls the hooks of the section `notify`: a failed or rejected run, drift, a rollback, each as one JSON object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from components.errors import GATE, PipelineError
from components.evaluator.verdict import Check
from components.processes import kill_group
from components.pusher.serving_state import Change
from components.serving.check_result import ServingCheckResult
from pipeline.authoring.config.notify import Event, NotifyConfig
from pipeline.core.records import FAILED, NOT_BLESSED, REJECTED, NodeOutcome, RunResult, error_to_json

_MARGIN_SECONDS = 1.0
"""Beyond a hook's own timeout, for the start and the end of its process."""


@dataclass(frozen=True)
class Notification:
    """The payload; `docs/notifications.md` describes the details of each event.

    Attributes:
      event: what happened.
      pipeline: the pipeline's name.
      run: the run's id; for drift, the run that the data is compared with; None for a rollback.
      text: one line for people, which chat services show.
      details: fields of the event.
      time: in UTC, ISO 8601.
    """

    event: Event
    pipeline: str
    run: str | None
    text: str
    details: Mapping[str, Any]
    time: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))


def send(hooks: Iterable[NotifyConfig], notification: Notification) -> None:
    """Calls the hooks that are for the event, in parallel; writes a warning for each that fails. Raises nothing."""
    payload = json.dumps(asdict(notification)).encode()
    calls = [_Call(index, hook, payload) for index, hook in enumerate(hooks) if notification.event in hook.events]
    for call in calls:
        call.start()
    for call in calls:
        if problem := call.wait():
            sys.stderr.write(f"warning: notify.{call.index}: {problem}\n")


def send_rollback(
    hooks: Iterable[NotifyConfig], pipeline: str, folder: str, change: Change, before: int | None, now: int | None
) -> None:
    """Notifies of a version that has lost its traffic to another one.

    Args:
      hooks: the section `notify`.
      pipeline: its name.
      folder: the push folder.
      change: the entry of its history.
      before: the version that has lost the traffic.
      now: the version that has it.
    """
    reason = f": {change.reason}" if change.reason else ""
    text = f"{pipeline} was rolled back from version {before or 'none'} to {now} by {change.by}{reason}"
    details = {"from": before, "to": now, "by": change.by, "reason": change.reason, "folder": folder}
    send(hooks, Notification("rollback", pipeline, None, text, details))


def send_run(hooks: Sequence[NotifyConfig], result: RunResult) -> None:
    """Notifies of a run on this machine that failed or was rejected."""
    events: dict[str, Event] = {FAILED: "failed", REJECTED: "rejected"}
    if event := events.get(result.state):
        failed = [node.id for node in result.nodes if node.state == FAILED]
        summary = result.summary
        ended = _ended(event, failed, result.error, summary.verdict, summary.checks, summary.serving)
        report = None if result.report is None else str(result.report)
        send(hooks, _of_run(event, result.pipeline, result.run or None, ended, report))


def send_node(
    hooks: Sequence[NotifyConfig], pipeline: str, run: str, node: str, outcome: NodeOutcome, record: Mapping[str, Any]
) -> None:
    """Notifies of a node that an orchestrator ran, if it failed or has rejected the model.

    Args:
      hooks: the section `notify`.
      pipeline: its name.
      run: the run's id.
      node: the node's id.
      outcome: how this attempt ended.
      record: the content of the run's `run.json`.
    """
    serving = ServingCheckResult(**record["serving"]) if record.get("serving") else None
    verdict, checks = record.get("verdict", ""), [Check(**each) for each in record.get("checks", ())]
    event: Event | None = None
    if outcome.state == FAILED:
        event = "rejected" if outcome.error and outcome.error.exit_code == GATE else "failed"
        ended = _ended(event, [node], outcome.error, verdict, checks, serving)
    elif outcome.earlier:
        return
    elif node == "Evaluator" and verdict == NOT_BLESSED:
        event, ended = "rejected", _ended("rejected", [], None, verdict, checks, None)
    elif node == "InfraValidator" and serving is not None and not serving.passed:
        event, ended = "rejected", _ended("rejected", [], None, verdict, checks, serving)
    if event:
        send(hooks, _of_run(event, pipeline, run, ended, None))


def _ended(
    event: Event,
    failed: Sequence[str],
    error: PipelineError | None,
    verdict: str,
    checks: Iterable[Check],
    serving: ServingCheckResult | None,
) -> dict[str, Any]:
    """The details of `failed` and `rejected`."""
    return {
        "nodes": list(failed),
        "error": error_to_json(error),
        "verdict": verdict,
        "checks": [str(check) for check in checks if not check.passed] if event == "rejected" else [],
        "serving": str(serving) if serving is not None and not serving.passed else None,
    }


def _of_run(event: Event, pipeline: str, run: str | None, ended: dict[str, Any], report: str | None) -> Notification:
    reasons = [ended["error"]["headline"]] if ended["error"] else []
    if not reasons and ended["verdict"] == NOT_BLESSED:
        reasons = [f"the model is {NOT_BLESSED}", *ended["checks"][:1]]
    if not reasons and ended["serving"]:
        reasons = [ended["serving"]]
    subject = f"run {run} of {pipeline}" if run else f"a run of {pipeline}"
    return Notification(event, pipeline, run, f"{subject} {event}: {': '.join(reasons)}", {**ended, "report": report})


class _Call:
    """One call of a hook, in a thread: resolving a name may take longer than any timeout of a socket."""

    def __init__(self, index: int, hook: NotifyConfig, payload: bytes) -> None:
        self.index = index
        self._hook = hook
        self._payload = payload
        self._problem: str | None = f"no answer within {hook.timeout_seconds:g} s"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._deadline = 0.0

    def start(self) -> None:
        self._deadline = time.monotonic() + self._hook.timeout_seconds + _MARGIN_SECONDS
        self._thread.start()

    def wait(self) -> str | None:
        """Waits until the hook is done or its time is over; returns what went wrong."""
        self._thread.join(max(self._deadline - time.monotonic(), 0))
        return self._problem

    def _run(self) -> None:
        call: Callable[[], str | None] = self._post if self._hook.webhook else self._execute
        try:
            self._problem = call()
        # The text of an exception may contain the URL.
        except Exception as error:
            self._problem = f"it failed: {type(error).__name__}"

    def _post(self) -> str | None:
        variable = str(self._hook.webhook)
        url = os.environ.get(variable, "")
        if not url.startswith(("https://", "http://")):
            what = "is not set" if not url else "contains no URL that begins with https:// or http://"
            return f"the environment variable {variable} {what}"
        request = urllib.request.Request(url, self._payload, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=self._hook.timeout_seconds):  # noqa: S310 - checked above
                return None
        except urllib.error.HTTPError as error:
            return f"the webhook in {variable} answers with HTTP status {error.code}"
        except urllib.error.URLError as error:
            cause = getattr(error.reason, "strerror", None) or type(error.reason).__name__
            return f"the webhook in {variable} cannot be reached: {cause}"

    def _execute(self) -> str | None:
        command = self._hook.command or ()
        # Standard output belongs to --json.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True) as process:
            try:
                process.communicate(self._payload, self._hook.timeout_seconds)
            except subprocess.TimeoutExpired:
                kill_group(process.pid, signal.SIGKILL)
                return f"{command[0]} was killed after {self._hook.timeout_seconds:g} s"
        return f"{command[0]} ended with exit code {process.returncode}" if process.returncode else None
