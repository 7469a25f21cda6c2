"""The record of a run on disk: `run.json` with its current state, and `attempts.jsonl` with a line per node attempt."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.base.errors import InputError, MachineError, PipelineError
from components.base.files import write_atomically
from pipeline.core.records import FAILED, NOT_RUN, NodeResult, RunSummary, error_to_json

RUNNING, WAITING = "running", "waiting"

_LOCK_ATTEMPTS = 5
_LOCK_PAUSE_SECONDS = 0.1
_SAVED_EVERY_SECONDS = 1.0


@dataclass
class NodeRecord:
    """The current state of a node."""

    id: str
    log: Path
    state: str = WAITING
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    rows: int | None = None
    attempts: int = 0
    error: PipelineError | None = None
    upstream: tuple[str, ...] = ()
    """Nodes that the node depends on."""
    jobs: tuple[str, ...] = ()
    """Web pages of the node's jobs; see NodeOutcome."""

    def result(self) -> NodeResult:
        """Return the record as a result; a node that has not ended counts as not run."""
        state = NOT_RUN if self.state in (WAITING, RUNNING) else self.state
        log = self.log if self.log.exists() else None
        return NodeResult(
            self.id, state, self.seconds, self.cpu_seconds, self.peak_memory_mb, self.rows, log, self.error, self.jobs
        )


@dataclass
class RunRecord:
    """The state of a run and the files in its folder, `logs/<run>/`.

    One process at a time holds the lock of the folder.
    """

    folder: Path
    pipeline: str
    from_nodes: tuple[str, ...] = ()
    to_nodes: tuple[str, ...] = ()
    state: str = RUNNING
    error: PipelineError | None = None
    summary: RunSummary = field(default_factory=RunSummary)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    _lock: int = -1
    _saved: float = 0.0

    @property
    def run(self) -> str:
        """ID of the run."""
        return self.folder.name

    def log(self, name: str) -> Path:
        """Return the path of the log file of a node, or of the run itself (`pipeline`)."""
        return self.folder / f"{name}.log"

    def add_nodes(self, nodes: Mapping[str, Sequence[str]]) -> None:
        """Set the nodes of the run, and keep the figures of earlier attempts.

        Args:
          nodes: Node → the nodes that it depends on, in the order of the pipeline.
        """
        self.nodes = {node: self.nodes.get(node) or NodeRecord(node, self.log(node)) for node in nodes}
        for node in self.nodes.values():
            node.state, node.error, node.upstream = WAITING, None, tuple(nodes[node.id])

    def save(self) -> None:
        """Write `run.json` atomically. Errors are ignored, so that a full disk does not end the run."""
        content = {
            "run": self.run,
            "pipeline": self.pipeline,
            "state": self.state,
            "started": self.started,
            "updated": time.time(),
            "from_nodes": self.from_nodes,
            "to_nodes": self.to_nodes,
            "nodes": {
                node.id: {
                    **node.result().to_json(),
                    "state": node.state,
                    "attempts": node.attempts,
                    "upstream": node.upstream,
                }
                for node in self.nodes.values()
            },
            **self.summary.to_json(),
            "error": error_to_json(self.error),
        }
        with contextlib.suppress(OSError):
            write_atomically(self.folder / "run.json", json.dumps(content, indent=2) + "\n")
        self._saved = time.monotonic()

    def tick(self) -> None:
        """Write the current figures of the running nodes to `run.json`, at most once a second."""
        if time.monotonic() - self._saved >= _SAVED_EVERY_SECONDS:
            self.save()

    def add_attempt(self, node: NodeRecord) -> None:
        """Add a line to `attempts.jsonl`, which lists all attempts.

        ML Metadata only has the state of the last attempt.
        """
        with contextlib.suppress(OSError):
            _append_attempt(self.folder, node.result(), node.attempts)

    def lock(self) -> None:
        """Lock the run for this process until `close` is called or the process ends.

        Raises:
          InputError: Another process holds the lock.
        """
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                # `read_record` takes the lock for a moment to find out whether the run is in progress.
                if attempt < _LOCK_ATTEMPTS - 1:
                    time.sleep(_LOCK_PAUSE_SECONDS)
        os.close(self._lock)
        raise InputError(
            f"run {self.run} is still in progress in another process", "wait for its end, or stop it, then resume it"
        )

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def create_run(logs: Path, pipeline: str, from_nodes: tuple[str, ...], to_nodes: tuple[str, ...]) -> RunRecord:
    """Create the folder of a new run, whose name is the ID of the run, and lock it.

    IDs sort by start time. `20261123T193451-250000-868a` is the UTC time with microseconds, followed by a random number
    that distinguishes runs of several machines that share a metadata store.

    Args:
      logs: Folder of the run logs.
      pipeline: Name of the pipeline.
      from_nodes: Nodes at which a partial run starts; empty for a full run.
      to_nodes: Nodes at which a partial run ends; empty for a full run.

    Raises:
      MachineError: The folder cannot be created.
    """
    while True:
        started = time.time()
        now = datetime.datetime.fromtimestamp(started, datetime.timezone.utc)
        folder = logs / f"{now:%Y%m%dT%H%M%S-%f}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if folder.is_dir():
                continue
            raise _make_folder_error(folder, error) from error
        except OSError as error:
            raise _make_folder_error(folder, error) from error
        record = RunRecord(folder, pipeline, from_nodes, to_nodes, started=started)
        record.lock()
        record.save()
        return record


def reopen_run(logs: Path, pipeline: str, run: str) -> RunRecord:
    """Open and lock an earlier run in order to continue it.

    Args:
      logs: Folder of the run logs.
      pipeline: Name of the pipeline.
      run: ID of the run; or `latest` for the run that started last.

    Raises:
      InputError: The run does not exist, or another process holds its lock.
    """
    runs = {
        file.parent.name: content
        for file in logs.glob("*/run.json")
        if (content := _read(file)) is not None and "started" in content
    }
    latest = max(runs, key=lambda name: (runs[name]["started"], name), default=None)
    if run == "latest" and latest is not None:
        run = latest
    if run not in runs:
        remedy = f"the newest run is {latest}" if latest else "there is no earlier run: start one without --resume"
        raise InputError(f"--resume: expected a run of {pipeline}, received {run!r}", remedy)
    record = RunRecord(logs / run, pipeline)
    record.lock()
    # Read the file again, because the run may have changed it before it released the lock.
    content = _read(record.folder / "run.json") or runs[run]
    record.from_nodes, record.to_nodes = tuple(content["from_nodes"]), tuple(content["to_nodes"])
    record.started = content["started"]
    for node, figures in content["nodes"].items():
        record.nodes[node] = _parse_node_record(node, record.log(node), figures)
    record.save()
    return record


def _parse_node_record(node: str, log: Path, content: dict[str, Any]) -> NodeRecord:
    figures = {key: content[key] for key in ("seconds", "cpu_seconds", "peak_memory_mb", "rows", "attempts")}
    return NodeRecord(node, log, **figures, jobs=tuple(content["jobs"]))


def _make_folder_error(folder: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the run's folder {folder} cannot be created: {error.strerror}",
        "give this user write permission, or name another folder with --output DIR",
    )


def update_node(
    folder: Path, result: NodeResult, graph: Mapping[str, Sequence[str]], earlier: bool, summary: RunSummary
) -> None:
    """Add an attempt at one node to the record of a run whose nodes an orchestrator runs in separate processes.

    The caller must hold the lock of the record.

    Args:
      folder: Folder of the run.
      result: Result of the attempt.
      graph: Node → the nodes that it depends on, in the order of the pipeline.
      earlier: Whether an earlier attempt finished the node. If so, its figures are kept.
      summary: Outputs of the nodes of the run that have finished so far.
    """
    file = folder / "run.json"
    content = _read(file) or {
        "run": folder.name,
        "started": time.time() - result.seconds,
        "from_nodes": [],
        "to_nodes": [],
    }
    nodes = content.get("nodes", {})
    if not earlier:
        attempts = nodes.get(result.id, {}).get("attempts", 0) + 1
        nodes[result.id] = {**result.to_json(), "attempts": attempts, "upstream": graph[result.id]}
        _append_attempt(folder, result, attempts)
    content["nodes"] = {name: nodes[name] for name in graph if name in nodes}
    error = next((node["error"] for node in nodes.values() if node["state"] == FAILED), None)
    content.update({**summary.to_json(), "error": error})
    write_atomically(file, json.dumps(content, indent=2) + "\n")


def _append_attempt(folder: Path, result: NodeResult, attempt: int) -> None:
    line = {"node": result.id, "attempt": attempt, "ended": time.time(), **result.to_json()}
    with (folder / "attempts.jsonl").open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


DIED = "died"
"""The state of a run whose process exited without recording a result."""


def is_folder_name(run: str) -> bool:
    """Return whether a run ID is a plain folder name, and not a path that leads out of the folder of logs."""
    return run not in ("", ".", "..") and "/" not in run and "\0" not in run


def read_record(logs: Path, run: str) -> dict[str, Any] | None:
    """Read the `run.json` of a run.

    Args:
      logs: Folder of the run logs.
      run: ID of the run.

    Returns:
      The content. If the run is recorded as running but its process has ended, the state is `died`. None if the file
      does not exist, because the run is a run of stock TFX or its logs were removed.
    """
    if not is_folder_name(run):
        return None
    content = _read(logs / run / "run.json")
    if content and content.get("state") == RUNNING:
        with _probe_lock(logs / run) as has_ended:
            # Read the file again, because the run may have ended since it was read.
            content = _read(logs / run / "run.json")
            if has_ended and content and content.get("state") == RUNNING:
                content["state"] = DIED
    return content


@contextlib.contextmanager
def _probe_lock(folder: Path) -> Iterator[bool]:
    """Yield whether the run has ended, which is the case if no process holds its lock.

    If so, this holds a shared lock within the block, so that no process resumes the run meanwhile.
    """
    has_ended = True
    with contextlib.ExitStack() as stack:
        try:
            lock = os.open(folder / "lock", os.O_RDONLY)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            has_ended = False
        except OSError:
            pass
        yield has_ended
