"""`runner.py --local`: runs the pipeline on this machine."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import sys
from typing import TYPE_CHECKING

from components.errors import InputError, PipelineError
from components.names import did_you_mean
from pipeline.commands.options import add_config, add_engine, load_config
from pipeline.graph import NODES

if TYPE_CHECKING:
    from pipeline.targets.result import RunResult
    from pipeline.targets.screen import Mode

ORCHESTRATORS = ("airflow", "kubeflow", "vertex")
HELP = "Run the pipeline on this machine, from raw rows to a pushed model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run."""
    parser.add_argument("--local", action="store_true", help="run on this machine (the default)")
    # One --output cannot be the folder of the one and the file of another.
    elsewhere = parser.add_mutually_exclusive_group()
    elsewhere.add_argument(
        "--airflow", action="store_true", help="run nothing, but write a DAG for Airflow 3 into the folder --output"
    )
    elsewhere.add_argument(
        "--kubeflow",
        action="store_true",
        help="run nothing, but write a pipeline for Kubeflow into --output FILE.yaml",
    )
    elsewhere.add_argument(
        "--vertex",
        action="store_true",
        help="run nothing, but write a spec for Vertex AI Pipelines into --output FILE.yaml",
    )
    parser.add_argument(
        "--submit",
        action="store_true",
        help="with --kubeflow or --vertex: hand it over, as a run, or as the config's schedule",
    )
    add_config(parser)
    add_engine(parser)
    parser.add_argument(
        "--from",
        dest="from_nodes",
        metavar="NODE",
        action="append",
        default=[],
        help="start at this node, on the outputs of the latest run",
    )
    parser.add_argument(
        "--to", dest="to_nodes", metavar="NODE", action="append", default=[], help="stop after this node"
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that ended early; `latest` is the newest one")
    parser.add_argument(
        "--force-bless",
        metavar="REASON",
        help="bless this run's model whatever the thresholds say; the reason is recorded with it",
    )
    parser.add_argument("--no-cache", action="store_true", help="run every node, whatever is unchanged")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")


def run(options: argparse.Namespace) -> int:
    """Runs the pipeline; returns the exit code.

    Raises:
      PipelineError: the run cannot begin; with --json it is printed as a run that failed instead.
    """
    for target in ORCHESTRATORS:
        if getattr(options, target):
            from pipeline.commands import orchestrated

            return orchestrated.run(target, options)
    if options.submit:
        raise InputError("--submit: expected --kubeflow or --vertex beside it, received none", "name one of them")
    # Imported late, so that --help does not wait for them.
    from pipeline.targets.result import refused
    from pipeline.targets.screen import summary

    try:
        result, mode = _run(options)
    except PipelineError as error:
        if not options.json:
            raise
        result, mode = refused(error), "json"
    summary(result, mode)
    return result.exit_code


def _run(options: argparse.Namespace) -> tuple[RunResult, Mode]:
    from components.ingest import source
    from pipeline import engines, preflight
    from pipeline.paths import Paths
    from pipeline.targets import compiled, local, turn

    _check_names([*options.from_nodes, *options.to_nodes])
    if options.force_bless is not None and not options.force_bless.strip():
        raise InputError("--force-bless: expected a reason, received none", "say why, for whoever reads it later")
    loaded = load_config(options, *(["runtime.cache=false"] if options.no_cache else []))
    # What the nodes are forked from imports TensorFlow and TFX for some seconds; the data is checked meanwhile.
    local.start_server()
    preflight.check(loaded)

    config = loaded.config
    said = engines.told(config.runtime, source.local_size(config.data))
    if not options.json:
        sys.stdout.write("".join(f"{line}\n" for line in said))
        sys.stdout.flush()
    output = Paths.of(config).root
    job = local.LocalJob(
        pipeline=config.pipeline.name,
        output=output,
        compile=functools.partial(compiled.in_child, config, options.force_bless),
        resume=options.resume,
        from_nodes=tuple(options.from_nodes),
        to_nodes=tuple(options.to_nodes),
        parallel=config.runtime.parallel_nodes or 0,
        screen="json" if options.json else "live" if sys.stdout.isatty() else "plain",
    )
    with turn.alone(output, config.pipeline.name) if config.schedule else contextlib.nullcontext():
        return dataclasses.replace(local.run(job), beam=tuple(said)), job.screen


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in NODES:
            raise InputError(
                f"--from/--to: the pipeline has no node {name!r}{did_you_mean(name, NODES)}",
                f"the nodes are {', '.join(NODES)}",
            )
