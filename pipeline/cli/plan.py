"""`runner.py plan`: what a run would do: its nodes, their inputs, the engine, and what is cached."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli.options import add_config, add_engine, load_config
from pipeline.cli.output import print_json, suppress_native_stderr

if TYPE_CHECKING:
    from pipeline.orchestration.dry_run import PlannedNode

HELP = "Show what a run would do: its nodes, their inputs, the engine, and what is cached. Nothing is run or written."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_engine(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    from components.ingest import input_files
    from pipeline.authoring.preflight import check_data, check_store
    from pipeline.orchestration import engines

    loaded = load_config(options)
    check_data(loaded)
    check_store(loaded.config.paths().store)
    with suppress_native_stderr(), tempfile.TemporaryDirectory() as scratch:
        from pipeline.orchestration.compiler import compile_pipeline
        from pipeline.orchestration.dry_run import forecast

        planned = forecast(compile_pipeline(loaded.config), Path(scratch))
    runtime = loaded.config.runtime
    beam = engines.describe(runtime, input_files.local_size(loaded.config.data))
    if options.json:
        plan = {"pipeline": loaded.config.pipeline.name, "engine": runtime.engine, "beam": beam}
        print_json({**plan, "nodes": [dataclasses.asdict(node) for node in planned]})
    else:
        sys.stdout.write("".join(f"{line}\n" for line in beam))
        _show(planned, runtime.engine)
    return 0


def _show(planned: list[PlannedNode], engine: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "will", "on", "why", "reads"):
        table.add_column(name)
    for node in planned:
        table.add_row(node.id, node.will, f"Beam, {engine}" if node.on_beam else "", node.why, "\n".join(node.inputs))
    Console(highlight=False, soft_wrap=True).print(table)
