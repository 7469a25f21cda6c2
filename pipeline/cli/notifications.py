"""Notification hooks of the section `notify`: each failed or rejected run, drift or rollback is one JSON object."""

from __future__ import annotations

import itertools
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

from components.base.errors import GATE, PipelineError
from components.base.processes import kill_group
from components.evaluator.verdict import Check
from components.pusher.serving_state import Change
from components.serving.check_result import ServingCheckResult
from pipeline.authoring.config.notify import Event, NotifyConfig
from pipeline.core.records import FAILED, NOT_BLESSED, REJECTED, NodeOutcome, RunResult, error_to_json
from pipeline.core.text import describe_approval

_MARGIN_SECONDS = 1.0
"""Time that is added to a hook's timeout, for starting and ending its process."""


@dataclass(frozen=True)
class Notification:
    """The payload of a hook; `docs/how-to/notifications.md` describes the details per event.

    Attributes:
      event: Kind of the event.
      pipeline: Name of the pipeline.
      run: ID of the run. For drift of the data, the run that the data was compared with; None for a rollback and for
        drift of served requests.
      text: One-line message for people; chat services show it.
      details: Fields that depend on the event, as JSON values.
      time: Time of the event in UTC, as ISO 8601 with seconds.
    """

    event: Event
    pipeline: str
    run: str | None
    text: str
    details: Mapping[str, Any]
    time: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))


def format_drift(drift: Mapping[str, float | None], most: int | None = None) -> str:
    """Return at most this number of drifted columns and metrics, with their values, such as `fare 0.120, auc 0.610`."""
    texts = (name if value is None else f"{name} {value:.3f}" for name, value in drift.items())
    return ", ".join(itertools.islice(texts, most))


def send(hooks: Iterable[NotifyConfig], notification: Notification) -> None:
    """Call the hooks that subscribe to the event, in parallel.

    A hook that fails never makes the command fail: the failure is written to stderr as a warning.
    """
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
    """Send a notification that traffic returned from one version to another.

    Args:
      hooks: Hooks of the section `notify`.
      pipeline: Name of the pipeline.
      folder: Path or URL of the push folder.
      change: Entry of the push folder's history that records the rollback.
      before: Version that received the traffic before; None if no version did.
      now: Version that receives the traffic now; None if no version does.
    """
    reason = f": {change.reason}" if change.reason else ""
    text = f"{pipeline} was rolled back from version {before or 'none'} to {now} by {change.by}{reason}"
    details = {"from": before, "to": now, "by": change.by, "reason": change.reason, "folder": folder}
    send(hooks, Notification("rollback", pipeline, None, text, details))


def send_run(hooks: Sequence[NotifyConfig], result: RunResult) -> None:
    """Send a notification if a run on this machine failed, was rejected, or waits for an approval."""
    events: dict[str, Event] = {FAILED: "failed", REJECTED: "rejected"}
    if event := events.get(result.state):
        failed = [node.id for node in result.nodes if node.state == FAILED]
        summary = result.summary
        details = _collect_details(event, failed, result.error, summary.verdict, summary.checks, summary.serving)
        report = None if result.report is None else str(result.report)
        send(hooks, _make_run_notification(event, result.pipeline, result.run or None, details, report))
    elif result.summary.awaits_approval:
        _send_approval(hooks, result.pipeline, result.run, result.summary.metrics)


def send_node(
    hooks: Sequence[NotifyConfig], pipeline: str, run: str, node: str, outcome: NodeOutcome, record: Mapping[str, Any]
) -> None:
    """Send a notification if a node that an orchestrator ran has failed, has rejected the model, or waits for approval.

    Args:
      hooks: Hooks of the section `notify`.
      pipeline: Name of the pipeline.
      run: ID of the run.
      node: ID of the node.
      outcome: Outcome of this attempt at the node.
      record: Content of the run's `run.json`.
    """
    serving = ServingCheckResult(**record["serving"]) if record.get("serving") else None
    verdict, checks = record.get("verdict", ""), [Check(**check) for check in record.get("checks", ())]
    event: Event | None = None
    if outcome.state == FAILED:
        event = "rejected" if outcome.error and outcome.error.exit_code == GATE else "failed"
        details = _collect_details(event, [node], outcome.error, verdict, checks, serving)
    elif outcome.earlier:
        return
    elif node == "Evaluator" and verdict == NOT_BLESSED:
        event, details = "rejected", _collect_details("rejected", [], None, verdict, checks, None)
    elif node == "InfraValidator" and serving is not None and not serving.passed:
        event, details = "rejected", _collect_details("rejected", [], None, verdict, checks, serving)
    elif node == "Pusher" and record.get("awaits_approval"):
        _send_approval(hooks, pipeline, run, record.get("metrics", {}))
    if event:
        send(hooks, _make_run_notification(event, pipeline, run, details, None))


def _send_approval(hooks: Sequence[NotifyConfig], pipeline: str, run: str, metrics: Mapping[str, float]) -> None:
    """Send a notification that the model of a run waits for an approval."""
    text = f"run {run} of {pipeline} has ended, and its model is not pushed yet; {describe_approval(run)}"
    send(hooks, Notification("approval", pipeline, run, text, {"metrics": dict(metrics)}))


def _collect_details(
    event: Event,
    failed: Sequence[str],
    error: PipelineError | None,
    verdict: str,
    checks: Iterable[Check],
    serving: ServingCheckResult | None,
) -> dict[str, Any]:
    """Return the details of the events `failed` and `rejected` as JSON values."""
    return {
        "nodes": list(failed),
        "error": error_to_json(error),
        "verdict": verdict,
        "checks": [str(check) for check in checks if not check.passed] if event == "rejected" else [],
        "serving": str(serving) if serving is not None and not serving.passed else None,
    }


def _make_run_notification(
    event: Event, pipeline: str, run: str | None, details: dict[str, Any], report: str | None
) -> Notification:
    reasons = [details["error"]["headline"]] if details["error"] else []
    if not reasons and details["verdict"] == NOT_BLESSED:
        reasons = [f"the model is {NOT_BLESSED}", *details["checks"][:1]]
    if not reasons and details["serving"]:
        reasons = [details["serving"]]
    subject = f"run {run} of {pipeline}" if run else f"a run of {pipeline}"
    return Notification(event, pipeline, run, f"{subject} {event}: {': '.join(reasons)}", {**details, "report": report})


class _Call:
    """A call of a hook in a separate thread.

    The thread enforces the timeout, because the timeout of a socket does not cover the resolution of the host name.
    """

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
        """Wait until the hook ends or its timeout is over; return the problem, or None if the call succeeded."""
        self._thread.join(max(self._deadline - time.monotonic(), 0))
        return self._problem

    def _run(self) -> None:
        call: Callable[[], str | None] = self._post if self._hook.webhook else self._execute
        try:
            self._problem = call()
        # Report only the exception's type: its text may contain the URL, which is a secret.
        except Exception as error:
            self._problem = f"it failed: {type(error).__name__}"

    def _post(self) -> str | None:
        variable = str(self._hook.webhook)
        url = os.environ.get(variable, "")
        if not url.startswith(("https://", "http://")):
            problem = "is not set" if not url else "contains no URL that begins with https:// or http://"
            return f"the environment variable {variable} {problem}"
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
        # Send the command's standard output to stderr (2), because stdout must contain only the output of --json.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True) as process:
            try:
                process.communicate(self._payload, self._hook.timeout_seconds)
            except subprocess.TimeoutExpired:
                kill_group(process.pid, signal.SIGKILL)
                return f"{command[0]} was killed after {self._hook.timeout_seconds:g} s"
        return f"{command[0]} ended with exit code {process.returncode}" if process.returncode else None
