"""The record of a run: `run.json` has its current state, `attempts.jsonl` a line per attempt at a node."""

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

from components.errors import InputError, MachineError, PipelineError
from components.files import write_atomically
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
    """The nodes it depends on."""
    jobs: tuple[str, ...] = ()
    """As in NodeOutcome."""

    def result(self) -> NodeResult:
        """The record at the end of the run."""
        state = NOT_RUN if self.state in (WAITING, RUNNING) else self.state
        log = self.log if self.log.exists() else None
        return NodeResult(
            self.id, state, self.seconds, self.cpu_seconds, self.peak_memory_mb, self.rows, log, self.error, self.jobs
        )


@dataclass
class RunRecord:
    """A run's folder, `logs/<run>/`, and its files; one process at a time holds its lock."""

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
        """The run's id."""
        return self.folder.name

    def log(self, name: str) -> Path:
        """The log file of a node, or of the run (`pipeline`)."""
        return self.folder / f"{name}.log"

    def add_nodes(self, nodes: Mapping[str, Sequence[str]]) -> None:
        """Sets the run's nodes and their dependencies; keeps the figures of earlier attempts."""
        self.nodes = {node: self.nodes.get(node) or NodeRecord(node, self.log(node)) for node in nodes}
        for node in self.nodes.values():
            node.state, node.error, node.upstream = WAITING, None, tuple(nodes[node.id])

    def save(self) -> None:
        """Writes `run.json` atomically; a full disk does not end the run."""
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
        """Writes the current figures of the running nodes to `run.json`, at most once a second."""
        if time.monotonic() - self._saved >= _SAVED_EVERY_SECONDS:
            self.save()

    def add_attempt(self, node: NodeRecord) -> None:
        """Adds a line to `attempts.jsonl`, which has all attempts; ML Metadata has the state of the last one."""
        with contextlib.suppress(OSError):
            _add_line(self.folder, node.result(), node.attempts)

    def lock(self) -> None:
        """Locks the run for this process until `close` or its end.

        Raises:
          InputError: another process holds the lock.
        """
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                # `record` takes the lock for a moment to find out whether the run is in progress.
                if attempt < _LOCK_ATTEMPTS - 1:
                    time.sleep(_LOCK_PAUSE_SECONDS)
        os.close(self._lock)
        raise InputError(
            f"run {self.run} is still in progress in another process", "wait for its end, or stop it, then resume it"
        )

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._lock)


def new_run(logs: Path, pipeline: str, from_nodes: tuple[str, ...], to_nodes: tuple[str, ...]) -> RunRecord:
    """Starts a run: creates its folder, whose name is the run's id.

    Ids sort by start time: `20261123T193451-250000-868a` is the UTC time with microseconds, and a random number that
    separates runs of several machines that share a metadata store.

    Raises:
      MachineError: the folder cannot be created.
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
            raise _no_folder(folder, error) from error
        except OSError as error:
            raise _no_folder(folder, error) from error
        record = RunRecord(folder, pipeline, from_nodes, to_nodes, started=started)
        record.lock()
        record.save()
        return record


def old_run(logs: Path, pipeline: str, run: str) -> RunRecord:
    """Opens an earlier run to continue it; `latest` is the run that started last, whatever its id.

    Raises:
      InputError: there is no such run, or another process holds it.
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
        hint = f"the newest run is {latest}" if latest else "there is no earlier run: start one without --resume"
        raise InputError(f"--resume: expected a run of {pipeline}, received {run!r}", hint)
    record = RunRecord(logs / run, pipeline)
    record.lock()
    # Again, because the run may have ended in between.
    content = _read(record.folder / "run.json") or runs[run]
    record.from_nodes, record.to_nodes = tuple(content["from_nodes"]), tuple(content["to_nodes"])
    record.started = content["started"]
    for node, figures in content["nodes"].items():
        record.nodes[node] = _node_record(node, record.log(node), figures)
    record.save()
    return record


def _node_record(node: str, log: Path, content: dict[str, Any]) -> NodeRecord:
    figures = {key: content[key] for key in ("seconds", "cpu_seconds", "peak_memory_mb", "rows", "attempts")}
    return NodeRecord(node, log, **figures, jobs=tuple(content["jobs"]))


def _no_folder(folder: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the run's folder {folder} cannot be created: {error.strerror}",
        "give this user write permission, or name another folder with --output DIR",
    )


def update_node(
    folder: Path, result: NodeResult, graph: Mapping[str, Sequence[str]], earlier: bool, summary: RunSummary
) -> None:
    """Adds an attempt at one node to the record of a run whose nodes run in separate processes.

    The caller holds the lock of the record.

    Args:
      folder: of the run.
      result: how the attempt ended.
      graph: node → the nodes it depends on, in the order of the pipeline.
      earlier: whether an earlier attempt finished the node; then its figures are not replaced.
      summary: what the nodes of the run have produced so far.
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
        _add_line(folder, result, attempts)
    content["nodes"] = {node: nodes[node] for node in graph if node in nodes}
    error = next((each["error"] for each in nodes.values() if each["state"] == FAILED), None)
    content.update({**summary.to_json(), "error": error})
    write_atomically(file, json.dumps(content, indent=2) + "\n")


def _add_line(folder: Path, result: NodeResult, attempt: int) -> None:
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
    """Whether a run's id is a valid folder name, and no path out of the folder of logs."""
    return run not in ("", ".", "..") and "/" not in run and "\0" not in run


def record(logs: Path, run: str) -> dict[str, Any] | None:
    """The content of a run's `run.json`; None for a run of stock TFX, or if the file was removed."""
    if not is_folder_name(run):
        return None
    content = _read(logs / run / "run.json")
    if content and content.get("state") == RUNNING:
        with _not_in_progress(logs / run) as died:
            # Read again, because the run may have ended in between.
            content = _read(logs / run / "run.json")
            if died and content and content.get("state") == RUNNING:
                content["state"] = DIED
    return content


@contextlib.contextmanager
def _not_in_progress(folder: Path) -> Iterator[bool]:
    """Yields whether no process holds the run's lock; then none takes it in the block."""
    ended = True
    with contextlib.ExitStack() as stack:
        try:
            lock = os.open(folder / "lock", os.O_RDONLY)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            ended = False
        except OSError:
            pass
        yield ended
