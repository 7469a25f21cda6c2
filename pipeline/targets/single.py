"""One node of a compiled pipeline in this process, for an orchestrator that starts a process (or a pod) per node.

What the local target keeps of a run in one process, many processes keep together here, in the same folder and form:
`run.json`, `attempts.jsonl`, a report. So the verbs tell of such a run as of any other.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from components.errors import InputError, MachineError
from pipeline import nodes
from pipeline.graph import FAILED, NodeOutcome
from pipeline.metadata.gather import facts
from pipeline.report import write
from pipeline.targets.child import used
from pipeline.targets.result import NodeResult


@dataclass(frozen=True)
class NodeJob:
    """What to run.

    Args:
      ir: the compiled pipeline.
      node: the id of the node.
      run: the id of the run; the same for all its nodes and all attempts at them.
      logs: the folder with a folder per run; None: beside the pipeline's artifacts, as for local runs.
      span: the span that ExampleGen takes, instead of the newest; then the last of those that the config asks for.
    """

    ir: bytes
    node: str
    run: str
    logs: Path | None = None
    span: int | None = None


def run(job: NodeJob) -> NodeOutcome:
    """Runs the node, unless an earlier attempt at this run has ended it well; its failure is returned, not raised.

    What an earlier attempt has left open is closed first, if its process is gone.

    Raises:
      InputError: there is no such node, it is still at work in another process, or the span is no span.
      MachineError: the metadata store does not open, or the folder cannot be written.
    """
    graph = {}
    # Some files that are no such thing can be read as an empty one.
    with contextlib.suppress(DecodeError):
        graph = {node.id: node for node in nodes.graph(job.ir)}
    if not graph:
        raise InputError("--pipeline: the file is no compiled pipeline", "make it with `runner.py compile`")
    if job.node not in graph:
        raise InputError(
            f"--node: expected a node of this pipeline, received {job.node!r}", f"the nodes are {', '.join(graph)}"
        )
    ir = job.ir if job.span is None else nodes.at_span(job.ir, job.span)
    folder = (job.logs or Path(nodes.root_of(ir, job.run)).parent / "logs") / job.run
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the run's folder {folder} cannot be made: {error.strerror}", "name another one with --logs"
        ) from error
    with _alone(folder, job):
        nodes.clean_up(ir, job.run, only=job.node)
        started, before = time.time(), used()[0]
        outcome = nodes.run_node(ir, job.node, job.run)
        cpu_seconds, peak_memory_mb = used()
        result = NodeResult(
            job.node,
            outcome.state,
            time.time() - started,
            cpu_seconds - before,
            peak_memory_mb,
            outcome.rows,
            None,
            outcome.error,
        )
    _tell(folder, ir, job.run, result, {each.id: each.upstream for each in graph.values()}, outcome.earlier)
    return outcome


@contextlib.contextmanager
def _alone(folder: Path, job: NodeJob) -> Iterator[None]:
    """Holds the node for this process; the kernel lets go of it however the process ends."""
    lock = os.open(folder / f"{job.node}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{job.node} of run {job.run} is still at work in another process", "wait for its end, or stop it"
            ) from error
        yield
    finally:
        os.close(lock)


def _tell(
    folder: Path, ir: bytes, run: str, result: NodeResult, graph: dict[str, tuple[str, ...]], earlier: bool
) -> None:
    """Enters the attempt into the run's record, then writes its report; one process at a time."""
    record = folder / "run.json"
    with (folder / "record.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = _read(record) or {"run": run, "started": time.time() - result.seconds, "from_nodes": [], "to_nodes": []}
        known = told.setdefault("nodes", {})
        attempts = known.get(result.id, {}).get("attempts", 0)
        # What an earlier attempt has finished keeps that attempt's figures.
        if not earlier:
            attempts += 1
            known[result.id] = {**result.to_json(), "attempts": attempts, "upstream": graph[result.id]}
            line = {"node": result.id, "attempt": attempts, "ended": time.time(), **result.to_json()}
            with (folder / "attempts.jsonl").open("a") as lines:
                lines.write(json.dumps(line) + "\n")
        told["nodes"] = {node: known[node] for node in graph if node in known}
        store = nodes.open_store(ir)
        failed = next((each["error"] for each in known.values() if each["state"] == FAILED), None)
        told.update({**facts(store, run).to_json(), "error": failed})
        beside = record.with_suffix(".json.new")
        beside.write_text(json.dumps(told, indent=2) + "\n")
        beside.replace(record)
        of_run = next(each for each in store.runs_like(run) if each.name == run)
        write.report(store, folder.parent, of_run, write.place(folder.parent, run))


def _read(record: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(record.read_text())
        return found
    return None
