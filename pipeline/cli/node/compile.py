"""`runner.py node compile`: write the pipeline of a config as TFX's intermediate representation, for `node run`."""

from __future__ import annotations

import argparse

from pipeline.cli.local_paths import parse_local_file
from pipeline.cli.options import add_config, add_engine, check_before_run, load_config
from pipeline.cli.output import show, suppress_native_stderr

HELP = "Write the compiled pipeline, whose nodes `node run` runs one by one."
EXAMPLE = "python runner.py node compile --config configs/mine.yaml --into pipeline.pb"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_engine(parser)
    parser.add_argument("--into", metavar="FILE", type=parse_local_file, required=True, help="file to write")


def run(options: argparse.Namespace) -> int:
    from pipeline.orchestration import compiler

    loaded = load_config(options)
    check_before_run(loaded)
    with suppress_native_stderr():
        graph = compiler.write(loaded.config, options.into)
    show(f"{options.into}: {', '.join(node.id for node in graph)}")
    return 0
