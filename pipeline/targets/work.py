"""What the local target asks its children to do; TFX is imported only there, never by the module itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.graph import GraphNode, NodeOutcome
from pipeline.metadata.facts import Facts


def compile_pipeline(compile_: Callable[[], bytes]) -> tuple[bytes, tuple[GraphNode, ...]]:
    """The compiled pipeline and its graph."""
    ir = compile_()
    from pipeline import nodes

    return ir, nodes.graph(ir)


def make_partial(
    ir: bytes, run: str, from_nodes: tuple[str, ...], to_nodes: tuple[str, ...]
) -> tuple[bytes, tuple[GraphNode, ...]]:
    """The pipeline as a partial run, and its graph."""
    from pipeline import nodes

    partial = nodes.prepare(ir, run, from_nodes, to_nodes)
    return partial, nodes.graph(partial)


def run_node(ir: bytes, node_id: str, run: str) -> NodeOutcome:
    """One node."""
    from pipeline import nodes

    return nodes.run_node(ir, node_id, run)


def clean_up(ir: bytes, run: str) -> list[str]:
    """Closes what dead nodes have left open."""
    from pipeline import nodes

    return nodes.clean_up(ir, run)


def read_facts(ir: bytes, run: str) -> Facts:
    """What came out of the run."""
    from pipeline import nodes
    from pipeline.metadata.gather import facts

    return facts(nodes.open_store(ir), run)


def write_report(ir: bytes, logs: Path, run: str) -> Path | None:
    """The run's report; None where ML Metadata knows nothing of the run."""
    from pipeline import nodes
    from pipeline.report import write

    store = nodes.open_store(ir)
    file = write.place(logs, run)
    for found in store.runs_like(run):
        if found.name == run:
            write.report(store, logs, found, file)
            return file
    return None
