"""One node of a compiled pipeline in this process, for an orchestrator that starts a process (or a pod) per node.

All processes of a run write one record, in the same folder and form as a run on one machine: `run.json`,
`attempts.jsonl` and a report. So every verb can read it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from components.base.errors import InputError, MachineError
from components.base.files import exclusive_lock, is_remote
from components.ingest.driver import EXAMPLE_GEN, parameter_for_span
from pipeline.core import run_locks, run_record
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
      logs: the folder with a folder per run; None: next to the pipeline's artifacts, as for local runs.
      reporting: what is done with the results.
      span: the span that ExampleGen reads instead of the newest; of several spans, the last.
    """

    ir: bytes
    node: str
    run: str
    reporting: Reporting
    logs: Path | None = None
    span: int | None = None

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return (self.logs or Path(nodes.root_of(self.ir, self.run)).parent / "logs") / self.run


def run(job: NodeJob) -> NodeOutcome:
    """Run the node, unless an earlier attempt at this run succeeded; its failure is returned, not raised.

    First removes what a killed attempt left.

    Raises:
      InputError: the node does not exist or is running in another process, or the span is invalid.
      MachineError: the metadata store does not open, or the folder cannot be written.
    """
    graph = {}
    # Some other files parse as an empty pipeline.
    with contextlib.suppress(DecodeError):
        graph = {node.id: node for node in nodes.graph(job.ir)}
    if not graph:
        raise InputError("--pipeline: the file is no compiled pipeline", "make it with `runner.py node compile`")
    if job.node not in graph:
        raise InputError(
            f"--node: expected a node of this pipeline, received {job.node!r}", f"the nodes are {', '.join(graph)}"
        )
    ir = job.ir
    if job.span is not None:
        if EXAMPLE_GEN not in graph:
            raise InputError("--span: expected a pipeline with an ExampleGen, received one without", "remove --span")
        parameter, value = parameter_for_span(nodes.text_parameters(ir, EXAMPLE_GEN), job.span)
        ir = nodes.set_parameter(ir, EXAMPLE_GEN, parameter, value)
    folder = job.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the run's folder {folder} cannot be created: {error.strerror}", "name another one with --logs"
        ) from error
    with exclusive_node(folder, job.node, job.run), _artifacts_in_use(ir, job.run):
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
            outcome.jobs,
        )
    store = nodes.open_store(ir)
    with exclusive_lock(folder / "record.lock"):
        summary = job.reporting.summarize(store, job.run)
        run_record.update_node(
            folder, result, {each.id: each.upstream for each in graph.values()}, outcome.earlier, summary
        )
        job.reporting.write_report(store, folder.parent, job.run)
    return outcome


def _artifacts_in_use(ir: bytes, run: str) -> contextlib.AbstractContextManager[None]:
    root = nodes.root_of(ir, run)
    # gc removes nothing from an object store.
    return contextlib.nullcontext() if is_remote(root) else run_locks.artifacts_in_use(Path(root).parent)


@contextlib.contextmanager
def exclusive_node(folder: Path, node: str, run: str) -> Iterator[None]:
    """Hold a lock on a node of a run.

    Args:
      folder: of the run.
      node: the node's id.
      run: the run's id.

    Raises:
      InputError: another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        # Only this call may report a held lock: the node itself can raise a BlockingIOError as well.
        try:
            stack.enter_context(exclusive_lock(run_locks.get_node_lock_path(folder, node), wait=False))
        except BlockingIOError as error:
            raise InputError(
                f"{node} of run {run} is still running in another process", "wait for its end, or stop it"
            ) from error
        yield
