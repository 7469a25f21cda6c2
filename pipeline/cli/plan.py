"""`runner.py plan`: show what a run would do: its nodes, their inputs, the engine, and which outputs are cached."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.options import add_config, add_engine, load_config
from pipeline.cli.output import make_table, print_json, show, suppress_native_stderr

if TYPE_CHECKING:
    from components.models.table_sizes import TableSize
    from components.trainer.placement import Placement
    from components.trainer.table_memory import TaskMemory
    from pipeline.authoring.config import Config
    from pipeline.orchestration.dry_run import PlannedNode

_RUNS_SEARCHED = 20
"""Number of newest runs that are searched for a run with vocabularies."""
_TABLES_SHOWN = 20
"""Maximum number of embedding tables to print, largest first."""

HELP = "Show what a run would do: its nodes, their inputs, the engine, and what is cached. Nothing is run or written."
EXAMPLE = "python runner.py plan --config configs/mine.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_engine(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    from components.ingest.input_size import estimate_local_size
    from components.trainer import table_memory
    from pipeline.authoring.preflight import check_data, check_store, check_tables
    from pipeline.orchestration import engines

    loaded = load_config(options)
    check_data(loaded)
    check_store(loaded.config.paths().store)
    with suppress_native_stderr(), tempfile.TemporaryDirectory() as scratch:
        from pipeline.orchestration.compiler import compile_pipeline
        from pipeline.orchestration.dry_run import forecast

        planned = forecast(compile_pipeline(loaded.config), Path(scratch))
    graph = _find_transform_graph(loaded.config)
    tables = _list_tables(loaded.config, graph)
    placement = _compute_placement(loaded.config, graph)
    training = loaded.config.training
    networks = training.folds or 1
    tasks = table_memory.compute_task_memory(training.strategy, tables, networks)
    is_placed = training.strategy.kind == "parameter_server"
    placed = table_memory.compute_ps_bytes(training.strategy, tables, networks) if is_placed else {}
    runtime = loaded.config.runtime
    beam = engines.describe(runtime, estimate_local_size(loaded.config.data))
    if options.json:
        plan = {"pipeline": loaded.config.pipeline.name, "engine": runtime.engine, "beam": beam}
        sizes = {"tables": [{**dataclasses.asdict(table), "bytes": table.bytes} for table in tables]}
        memory: dict[str, object] = {"table_memory": [dataclasses.asdict(task) for task in tasks]}
        memory["table_places"] = {name: list(sizes) for name, sizes in placed.items()}
        if placement:
            memory["mesh"] = placement.to_json()
        print_json({**plan, "nodes": [dataclasses.asdict(node) for node in planned], **sizes, **memory})
    else:
        sys.stdout.write("".join(f"{line}\n" for line in beam))
        _show_nodes(planned, runtime.engine)
        if tables:
            _show_tables(tables, tasks)
        if placement:
            _show_placement(placement)
        if placed:
            _show_places(placed)
    check_tables(loaded)
    return 0


def _find_transform_graph(config: Config) -> str | None:
    """Return the newest transform graph of the pipeline, which contains vocabularies; None if there is none."""
    from pipeline.core.metadata.location import exists
    from pipeline.core.metadata.sql import NoTablesError
    from pipeline.core.metadata.store import Store

    # Before the first run, a database server does not contain the tables of a store.
    with contextlib.suppress(NoTablesError):
        if exists(config.paths().store):
            store = Store(config.paths().store)
            runs = store.runs(config.pipeline.name, _RUNS_SEARCHED)
            graphs = (graph for run in runs for graph in store.artifacts(run.name, "TransformGraph"))
            return next((graph.uri for graph in graphs), None)
    return None


def _list_tables(config: Config, graph: str | None) -> list[TableSize]:
    """Return the embedding tables of the model.

    Args:
      config: Config of the pipeline.
      graph: Transform graph with the sizes of vocabularies; if None, the maximum sizes are assumed.
    """
    from components.trainer import table_memory
    from pipeline.authoring.plans import training_plan

    return [] if config.model.run_fn else table_memory.find_tables(training_plan(config), graph)


def _compute_placement(config: Config, graph: str | None) -> Placement | None:
    """Return where a mesh will have the variables of the network; None if the training does not use a mesh."""
    if not config.training.strategy.has_mesh or config.model.run_fn:
        return None
    from components.trainer.placement import compute_placement
    from pipeline.authoring.plans import training_plan

    with suppress_native_stderr():
        return compute_placement(training_plan(config), graph)


def _show_nodes(planned: list[PlannedNode], engine: str) -> None:
    table = make_table("node", "will", "on", "why", "reads")
    for node in planned:
        table.add_row(node.id, node.will, f"Beam, {engine}" if node.on_beam else "", node.why, "\n".join(node.inputs))
    show(table)


def _show_tables(tables: list[TableSize], tasks: list[TaskMemory]) -> None:
    table = make_table("feature", "kind", "table", numbers=("rows", "width", "MB in training"))
    for size in sorted(tables, key=lambda size: -size.bytes)[:_TABLES_SHOWN]:
        rows = f"{'at most ' if size.most else ''}{size.rows:,}"
        table.add_row(size.feature, size.kind, size.table, rows, str(size.width), f"{size.bytes / 1e6:,.1f}")
    if len(tables) > _TABLES_SHOWN:
        table.add_row(f"… {len(tables) - _TABLES_SHOWN} smaller ones")
    memory = ", ".join(
        f"{task.count} {task.task} {task.bytes / 1e6:,.1f} each"
        if task.count > 1
        else f"{task.task} {task.bytes / 1e6:,.1f}"
        for task in tasks
    )
    show("", table, f"tables of ids, MB of memory: {memory}")


def _show_placement(placement: Placement) -> None:
    table = make_table("device", numbers=("MB of weights", "gradients", "moments"))
    for memory in placement.devices:
        sizes = (memory.weights, memory.gradients, memory.moments)
        table.add_row(memory.device, *(f"{size / 1e6:,.3f}" for size in sizes))
    show("", *(f"each copy: {line}" for line in placement.describe_variables()), table)


def _show_places(placed: Mapping[str, Sequence[int]]) -> None:
    """Print which ps holds how much of each table."""
    from components.trainer import table_memory

    rows = {**placed, "all": table_memory.sum_ps_bytes(placed)} if len(placed) > 1 else placed
    columns = [f"ps-{number}" for number in range(len(next(iter(placed.values()))))]
    table = make_table("MB in training", numbers=columns)
    for name, sizes in rows.items():
        table.add_row(name, *(f"{size / 1e6:,.1f}" for size in sizes))
    show("", table)
