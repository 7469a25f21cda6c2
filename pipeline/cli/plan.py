"""`runner.py plan`: show what a run would do: its nodes, their inputs, the engine, and which outputs are cached."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.options import add_config, add_engine, load_config
from pipeline.cli.output import make_table, print_json, show, suppress_native_stderr

if TYPE_CHECKING:
    from components.models.table_sizes import TableSize
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
    tables = _list_tables(loaded.config)
    tasks = table_memory.compute_task_memory(loaded.config.training.strategy, tables)
    runtime = loaded.config.runtime
    beam = engines.describe(runtime, estimate_local_size(loaded.config.data))
    if options.json:
        plan = {"pipeline": loaded.config.pipeline.name, "engine": runtime.engine, "beam": beam}
        sizes = {"tables": [{**dataclasses.asdict(table), "bytes": table.bytes} for table in tables]}
        memory = {"table_memory": [dataclasses.asdict(task) for task in tasks]}
        print_json({**plan, "nodes": [dataclasses.asdict(node) for node in planned], **sizes, **memory})
    else:
        sys.stdout.write("".join(f"{line}\n" for line in beam))
        _show_nodes(planned, runtime.engine)
        if tables:
            _show_tables(tables, tasks)
    check_tables(loaded)
    return 0


def _list_tables(config: Config) -> list[TableSize]:
    """Return the embedding tables of the model.

    Sizes of vocabularies come from the last run that counted them; without such a run, the maximum size is assumed.
    """
    from components.trainer import table_memory
    from pipeline.authoring.plans import training_plan
    from pipeline.core.metadata.location import exists
    from pipeline.core.metadata.sql import NoTablesError
    from pipeline.core.metadata.store import Store

    if config.model.run_fn:
        return []
    graph_uri = None
    # Before the first run, a database server does not contain the tables of a store.
    with contextlib.suppress(NoTablesError):
        if exists(config.paths().store):
            store = Store(config.paths().store)
            runs = store.runs(config.pipeline.name, _RUNS_SEARCHED)
            graphs = (graph for run in runs for graph in store.artifacts(run.name, "TransformGraph"))
            graph_uri = next((graph.uri for graph in graphs), None)
    return table_memory.find_tables(training_plan(config), graph_uri)


def _show_nodes(planned: list[PlannedNode], engine: str) -> None:
    table = make_table("node", "will", "on", "why", "reads")
    for node in planned:
        table.add_row(node.id, node.will, f"Beam, {engine}" if node.on_beam else "", node.why, "\n".join(node.inputs))
    show(table)


def _show_tables(tables: list[TableSize], tasks: list[TaskMemory]) -> None:
    table = make_table("feature", "table", numbers=("rows", "width", "MB in training"))
    for size in sorted(tables, key=lambda size: -size.bytes)[:_TABLES_SHOWN]:
        rows = f"{'at most ' if size.most else ''}{size.rows:,}"
        table.add_row(size.feature, size.kind, rows, str(size.width), f"{size.bytes / 1e6:,.1f}")
    if len(tables) > _TABLES_SHOWN:
        table.add_row(f"… {len(tables) - _TABLES_SHOWN} smaller ones")
    memory = ", ".join(
        f"{task.count} {task.task} {task.bytes / 1e6:,.1f} each"
        if task.count > 1
        else f"{task.task} {task.bytes / 1e6:,.1f}"
        for task in tasks
    )
    show("", table, f"tables of ids, MB of memory: {memory}")
