"""Writes down a run while it goes on: `run.json` tells its state at any moment, `attempts.jsonl` each try of a node."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import InputError, MachineError, PipelineError
from pipeline.metadata.facts import Facts
from pipeline.targets.result import NOT_RUN, NodeResult, error_to_json

RUNNING, WAITING = "running", "waiting"

_LOCK_ATTEMPTS = 5
_LOCK_PAUSE_SECONDS = 0.1
_SAVED_EVERY_SECONDS = 1.0


@dataclass
class NodeRecord:
    """A node as it stands now."""

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
    """The nodes it waits for."""

    def result(self) -> NodeResult:
        """The record as it is handed out at the end."""
        state = NOT_RUN if self.state in (WAITING, RUNNING) else self.state
        log = self.log if self.log.exists() else None
        return NodeResult(
            self.id, state, self.seconds, self.cpu_seconds, self.peak_memory_mb, self.rows, log, self.error
        )


@dataclass
class RunRecord:
    """A run's folder, `logs/<run>/`, and what stands in it; only one process at a time may hold it open."""

    folder: Path
    pipeline: str
    from_nodes: tuple[str, ...] = ()
    to_nodes: tuple[str, ...] = ()
    state: str = RUNNING
    error: PipelineError | None = None
    facts: Facts = field(default_factory=Facts)
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    _lock: int = -1
    _saved: float = 0.0

    @property
    def run(self) -> str:
        """The run's id."""
        return self.folder.name

    def log(self, name: str) -> Path:
        """Where a node, or the run itself (`pipeline`), writes its output."""
        return self.folder / f"{name}.log"

    def add_nodes(self, nodes: Mapping[str, Sequence[str]]) -> None:
        """Names the run's nodes, each with those it waits for; what an earlier attempt has measured stays."""
        self.nodes = {node: self.nodes.get(node) or NodeRecord(node, self.log(node)) for node in nodes}
        for node in self.nodes.values():
            node.state, node.error, node.upstream = WAITING, None, tuple(nodes[node.id])

    def save(self) -> None:
        """Writes `run.json`, whole or not at all. A disk that is full just now is no reason to end a run."""
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
            **self.facts.to_json(),
            "error": error_to_json(self.error),
        }
        beside = self.folder / "run.json.new"
        with contextlib.suppress(OSError):
            beside.write_text(json.dumps(content, indent=2) + "\n")
            beside.replace(self.folder / "run.json")
        self._saved = time.monotonic()

    def tick(self) -> None:
        """Time has passed: whoever looks at `run.json` sees the figures of the running nodes grow."""
        if time.monotonic() - self._saved >= _SAVED_EVERY_SECONDS:
            self.save()

    def add_attempt(self, node: NodeRecord) -> None:
        """Adds a line to `attempts.jsonl`: a second try overwrites the first one's state in ML Metadata, not here."""
        line = {"node": node.id, "attempt": node.attempts, "ended": time.time(), **node.result().to_json()}
        with contextlib.suppress(OSError), (self.folder / "attempts.jsonl").open("a") as attempts:
            attempts.write(json.dumps(line) + "\n")

    def lock(self) -> None:
        """Holds the run for this process until `close` or its end.

        Raises:
          InputError: another process is at it.
        """
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                # Who lists the runs looks whether this one is held, and holds it for that moment.
                if attempt < _LOCK_ATTEMPTS - 1:
                    time.sleep(_LOCK_PAUSE_SECONDS)
        os.close(self._lock)
        raise InputError(
            f"run {self.run} is still going on in another process", "wait for its end, or stop it, then resume it"
        )

    def close(self) -> None:
        """Lets go of the run."""
        os.close(self._lock)


def new_run(logs: Path, pipeline: str, from_nodes: tuple[str, ...], to_nodes: tuple[str, ...]) -> RunRecord:
    """Starts a run: a folder with a new id that sorts by time.

    Raises:
      MachineError: the folder cannot be made.
    """
    while True:
        now = datetime.datetime.now(datetime.timezone.utc)
        # The suffix keeps two runs apart that start in the same second; mkdir settles the rest.
        folder = logs / f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if folder.is_dir():
                continue
            raise _no_folder(folder, error) from error
        except OSError as error:
            raise _no_folder(folder, error) from error
        record = RunRecord(folder, pipeline, from_nodes, to_nodes)
        record.lock()
        record.save()
        return record


def old_run(logs: Path, pipeline: str, run: str) -> RunRecord:
    """Opens an earlier run to go on with it; `latest` names the newest.

    Raises:
      InputError: there is no such run, or it is still going on.
    """
    known = sorted(path.parent.name for path in logs.glob("*/run.json"))
    if run == "latest" and known:
        run = known[-1]
    if run not in known:
        hint = f"the newest run is {known[-1]}" if known else "there is no earlier run: start one without --resume"
        raise InputError(f"--resume: expected a run of {pipeline}, received {run!r}", hint)
    content = json.loads((logs / run / "run.json").read_text())
    record = RunRecord(logs / run, pipeline, tuple(content["from_nodes"]), tuple(content["to_nodes"]))
    record.started = content["started"]
    record.lock()
    for node, told in content["nodes"].items():
        record.nodes[node] = _node_record(node, record.log(node), told)
    return record


def _node_record(node: str, log: Path, told: dict[str, Any]) -> NodeRecord:
    figures = {key: told[key] for key in ("seconds", "cpu_seconds", "peak_memory_mb", "rows", "attempts")}
    return NodeRecord(node, log, **figures)


def _no_folder(folder: Path, error: OSError) -> MachineError:
    return MachineError(
        f"the run's folder {folder} cannot be made: {error.strerror}",
        "give this user the right to write there, or name another folder with --output DIR",
    )
