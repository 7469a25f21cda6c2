"""`runner.py --local`: runs the pipeline on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import InputError, PipelineError
from components.names import did_you_mean
from pipeline.commands.options import add_config, add_engine, load_config
from pipeline.graph import NODES

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.targets.result import RunResult
    from pipeline.targets.screen import Mode

HELP = "Run the pipeline on this machine, from raw rows to a pushed model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run."""
    parser.add_argument("--local", action="store_true", help="run on this machine (the default)")
    parser.add_argument(
        "--airflow", action="store_true", help="run nothing, but write a DAG for Airflow 3 into the folder --output"
    )
    parser.add_argument(
        "--vertex",
        action="store_true",
        help="run nothing, but write a spec for Vertex AI Pipelines into --output FILE.yaml",
    )
    parser.add_argument(
        "--submit", action="store_true", help="with --vertex: hand it over, as a run, or as the config's schedule"
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
    if options.airflow:
        return _write_dag(options)
    if options.vertex:
        return _write_spec(options)
    if options.submit:
        raise InputError("--submit: expected --vertex beside it, received none", "add --vertex")
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
    from pipeline.targets import local

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
    job = local.LocalJob(
        pipeline=config.pipeline.name,
        output=Paths.of(config).root,
        compile=functools.partial(_compile, config, options.force_bless),
        resume=options.resume,
        from_nodes=tuple(options.from_nodes),
        to_nodes=tuple(options.to_nodes),
        parallel=config.runtime.parallel_nodes or 0,
        screen="json" if options.json else "live" if sys.stdout.isatty() else "plain",
    )
    return dataclasses.replace(local.run(job), beam=tuple(said)), job.screen


def _write_dag(options: argparse.Namespace) -> int:
    from pipeline import preflight
    from pipeline.commands.told import only_ours, show
    from pipeline.targets import airflow

    folder, options.output = options.output, None
    if folder is None:
        raise InputError("--airflow: expected --output DAGS, received none", "name the folder that Airflow reads")
    if options.local or options.resume or options.from_nodes or options.to_nodes:
        raise InputError(
            "--airflow: expected no option of a run on this machine, received one",
            "leave out --local, --from and so on",
        )
    loaded = load_config(options)
    preflight.check(loaded)
    given = (
        "--config",
        str(Path(options.config).absolute()),
        *(word for each in options.set for word in ("--set", each)),
    )
    with only_ours():
        dag = airflow.write(loaded.config, given, Path(folder))
    show(f"{dag}: a task per node; what it reads lies in {dag.with_suffix('')}")
    return 0


def _write_spec(options: argparse.Namespace) -> int:
    from pipeline import preflight
    from pipeline.commands.told import only_ours, show
    from pipeline.targets import vertex

    file, options.output = options.output, None
    if file is None:
        raise InputError("--vertex: expected --output FILE.yaml, received none", "name the file to write")
    if options.local or options.airflow or options.resume or options.from_nodes or options.to_nodes:
        raise InputError(
            "--vertex: expected no option of a run on this machine, received one",
            "leave out --local, --from and so on",
        )
    if options.force_bless is not None:
        raise InputError("--vertex: a model is blessed by force in one run, and the spec is for many", "leave it out")
    loaded = load_config(options, *(["runtime.cache=false"] if options.no_cache else []))
    vertex.check(loaded.config)
    # The first look at data in a bucket imports TensorFlow.
    with only_ours():
        preflight.check_data(loaded)
        show(*(f"careful: {line}" for line in vertex.unseen(loaded.config)))
        spec = vertex.write(loaded.config, Path(file))
    show(f"{file}: {len(spec['root']['dag']['tasks'])} tasks for Vertex AI Pipelines")
    if options.submit:
        with only_ours():
            from pipeline.targets import vertex_jobs

            show(*vertex_jobs.submit(loaded.config, spec))
    return 0


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in NODES:
            raise InputError(
                f"--from/--to: the pipeline has no node {name!r}{did_you_mean(name, NODES)}",
                f"the nodes are {', '.join(NODES)}",
            )


def _compile(config: Config, force_bless: str | None) -> bytes:
    """Compiles in a child of the server, where TFX is imported already."""
    from pipeline.build import compile_pipeline

    return compile_pipeline(config, force_bless)
