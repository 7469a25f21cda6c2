"""One node of a compiled pipeline in this process, for an orchestrator that starts a process (or a pod) per node.

The processes of a run keep its record together, in the same folder and form as a run on one machine: `run.json`,
`attempts.jsonl`, a report. So the verbs show such a run like any other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from components.errors import InputError, MachineError
from components.files import exclusive_lock
from components.ingest.driver import EXAMPLE_GEN, parameter_for_span
from pipeline.core import run_record
from pipeline.core.records import NodeOutcome, NodeResult
from pipeline.orchestration import node as nodes
from pipeline.orchestration.local.processes import used
from pipeline.orchestration.reporting import Reporting


@dataclass(frozen=True)
class NodeJob:
    """What to run.

    Args:
      ir: the compiled pipeline.
      node: the id of the node.
      run: the id of the run; the same for all its nodes and all attempts at them.
      logs: the folder with a folder per run; None: beside the pipeline's artifacts, as for local runs.
      reporting: what is done with the results.
      span: the span that ExampleGen takes, instead of the newest; then the last of those that the config asks for.
    """

    ir: bytes
    node: str
    run: str
    reporting: Reporting
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
    ir = job.ir
    if job.span is not None:
        if EXAMPLE_GEN not in graph:
            raise InputError("--span: expected a pipeline with an ExampleGen, received one without", "leave --span out")
        parameter, value = parameter_for_span(nodes.text_parameters(ir, EXAMPLE_GEN), job.span)
        ir = nodes.set_parameter(ir, EXAMPLE_GEN, parameter, value)
    folder = (job.logs or Path(nodes.root_of(ir, job.run)).parent / "logs") / job.run
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the run's folder {folder} cannot be made: {error.strerror}", "name another one with --logs"
        ) from error
    with _hold_node(folder, job):
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
    store = nodes.open_store(ir)
    with exclusive_lock(folder / "record.lock"):
        facts = job.reporting.summarize(store, job.run)
        run_record.update_node(
            folder, result, {each.id: each.upstream for each in graph.values()}, outcome.earlier, facts
        )
        job.reporting.write_report(store, folder.parent, job.run)
    return outcome


@contextlib.contextmanager
def _hold_node(folder: Path, job: NodeJob) -> Iterator[None]:
    try:
        with exclusive_lock(folder / f"{job.node}.lock", wait=False):
            yield
    except BlockingIOError as error:
        raise InputError(
            f"{job.node} of run {job.run} is still at work in another process", "wait for its end, or stop it"
        ) from error
