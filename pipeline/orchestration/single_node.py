"""Run one node of a compiled pipeline in this process, for orchestrators that start a process or a pod per node.

All processes of a run write to one record, in the same folder and format as a run on one machine (`run.json`,
`attempts.jsonl` and a report), so that every verb can read it.
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
from pipeline.orchestration.local.processes import measure_usage
from pipeline.orchestration.reporting import Reporting


@dataclass(frozen=True)
class NodeJob:
    """A node to run.

    Args:
      ir: The compiled pipeline.
      node: ID of the node.
      run: ID of the run. It is the same for all nodes of the run and all attempts at them.
      reporting: Functions that process the results.
      logs: Folder that contains one folder per run. If None, `logs` next to the pipeline's artifacts, as in local runs.
      span: Number of the span that ExampleGen reads. With several spans, the last one. If None, the newest span.
    """

    ir: bytes
    node: str
    run: str
    reporting: Reporting
    logs: Path | None = None
    span: int | None = None

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return (self.logs or Path(nodes.root_of(self.ir, self.run)).parent / "logs") / self.run


def run(job: NodeJob) -> NodeOutcome:
    """Run the node unless an earlier attempt has succeeded in this run; return its failure instead of raising it.

    The leftovers of a killed attempt are removed first.

    Raises:
      InputError: The node does not exist or is running in another process, or the span is invalid.
      MachineError: The metadata store cannot be opened, or the folder cannot be written.
    """
    graph = {}
    # Some files of other types parse as an empty pipeline, so an empty graph is an error as well.
    with contextlib.suppress(DecodeError):
        graph = {node.id: node for node in nodes.graph(job.ir)}
    if not graph:
        raise InputError(
            "--pipeline: expected a compiled pipeline, received another file", "create it with `runner.py node compile`"
        )
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
            f"the run's folder {folder} cannot be created: {error.strerror}", "name another folder with --logs"
        ) from error
    with exclusive_node(folder, job.node, job.run), _artifacts_in_use(ir, job.run):
        started, cpu_seconds_before = time.time(), measure_usage()[0]
        outcome = nodes.run_node(ir, job.node, job.run)
        cpu_seconds, peak_memory_mb = measure_usage()
        result = NodeResult(
            job.node,
            outcome.state,
            time.time() - started,
            cpu_seconds - cpu_seconds_before,
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
            folder, result, {node.id: node.upstream for node in graph.values()}, outcome.earlier, summary
        )
        job.reporting.write_report(store, folder.parent, job.run)
    return outcome


def _artifacts_in_use(ir: bytes, run: str) -> contextlib.AbstractContextManager[None]:
    root = nodes.root_of(ir, run)
    # No lock is needed in an object store, because gc does not remove anything from it.
    return contextlib.nullcontext() if is_remote(root) else run_locks.artifacts_in_use(Path(root).parent)


@contextlib.contextmanager
def exclusive_node(folder: Path, node: str, run: str) -> Iterator[None]:
    """Hold a lock on a node of a run.

    Args:
      folder: Folder of the run.
      node: ID of the node.
      run: ID of the run.

    Raises:
      InputError: Another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        # Catch the error of this call alone, because the node itself can raise a BlockingIOError as well.
        try:
            stack.enter_context(exclusive_lock(run_locks.get_node_lock_path(folder, node), wait=False))
        except BlockingIOError as error:
            raise InputError(
                f"{node} of run {run} is still running in another process", "wait until it has ended, or stop it"
            ) from error
        yield
