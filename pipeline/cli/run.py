"""`runner.py --local` runs the pipeline on this machine; `--airflow`, `--kubeflow`, `--vertex` write it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import InputError, PipelineError
from components.names import did_you_mean
from pipeline.cli.options import add_config, add_engine, check_before_run, load_config
from pipeline.cli.output import show, suppress_native_stderr

if TYPE_CHECKING:
    from pipeline.authoring.config import Loaded
    from pipeline.cli.run_output import Mode
    from pipeline.core.records import RunResult


def write_for_orchestrator(orchestrator: str, options: argparse.Namespace) -> int:
    """Writes the pipeline for `airflow`, `kubeflow` or `vertex`; returns the exit code.

    Raises:
      InputError: the options, the config or the data do not fit, or the output cannot be written.
      MachineError: a program or service that submission needs is missing, or does not answer.
    """
    path, options.output = options.output, None
    write, output = _WRITERS[orchestrator]
    if path is None:
        raise InputError(f"--{orchestrator}: expected --output, received none", f"add --output {output}")
    if options.local or options.resume or options.from_nodes or options.to_nodes or options.json:
        raise InputError(
            f"--{orchestrator}: expected no option of a run on this machine, received one",
            "remove --local, --from and so on",
        )
    if options.force_bless is not None:
        raise InputError(
            f"--{orchestrator}: this blesses the model of one run, and an orchestrator starts many", "remove it"
        )
    # As a field it is part of the options that are passed to the orchestrator.
    options.set += ["runtime.cache=false"] if options.no_cache else []
    return write(Path(path), options)


def _airflow(folder: Path, options: argparse.Namespace) -> int:
    from pipeline.orchestration import airflow

    if options.submit:
        raise InputError("--submit: Airflow reads its folder of DAGs by itself", "remove --submit")
    loaded = load_config(options)
    check_before_run(loaded)
    with suppress_native_stderr():
        dag = airflow.write(loaded.config, _arguments(Path(options.config).absolute(), options), folder)
    show(f"{dag}: a task per node; the files that it reads are in {dag.with_suffix('')}")
    return 0


def _kubeflow(file: Path, options: argparse.Namespace) -> int:
    from pipeline.authoring import preflight
    from pipeline.orchestration import compiler, kubeflow

    # Only the graph is needed: each container compiles the pipeline again.
    with tempfile.TemporaryDirectory() as scratch:
        loaded = load_config(options, f"runtime.output={scratch}")
        config = loaded.config
        section = kubeflow.check(config)
        with suppress_native_stderr():
            preflight.check_data(loaded)
            graph = compiler.graph(config)
    arguments = _arguments(_in_image(options.config), options)
    kubeflow.write(kubeflow.Job(config.pipeline.name, graph, arguments, section, config.schedule), file)
    show(
        f"{file}: {len(graph)} nodes, each a container of {section.image}",
        *map("note: {}".format, kubeflow.notes(config, section)),
    )
    if options.submit:
        show(kubeflow.submit(config, section, file))
    return 0


def _vertex(file: Path, options: argparse.Namespace) -> int:
    from pipeline.authoring import preflight
    from pipeline.orchestration import vertex

    loaded = load_config(options)
    vertex.check(loaded.config)
    # Access to data in a bucket imports TensorFlow.
    with suppress_native_stderr():
        preflight.check_data(loaded)
        spec = vertex.write(loaded.config, file)
    tasks = len(spec["root"]["dag"]["tasks"])
    show(f"{file}: {tasks} tasks for Vertex AI Pipelines", *map("note: {}".format, vertex.warnings(loaded.config)))
    if options.submit:
        with suppress_native_stderr():
            from pipeline.orchestration import vertex_client
        show(*vertex_client.submit(loaded.config, spec))
    return 0


_WRITERS: dict[str, tuple[Callable[[Path, argparse.Namespace], int], str]] = {
    "airflow": (_airflow, "DAGS, the folder that Airflow reads"),
    "kubeflow": (_kubeflow, "FILE.yaml"),
    "vertex": (_vertex, "FILE.yaml"),
}
"""Orchestrator → the function that writes for it, and what --output has to be."""


def _arguments(config: Path, options: argparse.Namespace) -> tuple[str, ...]:
    """The arguments of `runner.py` that select the same pipeline elsewhere."""
    engine = () if options.engine is None else ("--set", f"runtime.engine={options.engine}")
    return ("--config", str(config), *(word for each in options.set for word in ("--set", each)), *engine)


def _in_image(config: str) -> Path:
    """The path of a config in the image, whose working folder has the content of this one."""
    here = Path(config)
    return here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here


ORCHESTRATORS = ("airflow", "kubeflow", "vertex")
HELP = "Run the pipeline on this machine, from raw rows to a pushed model."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--local", action="store_true", help="run on this machine (the default)")
    # One --output cannot be the folder of the one and the file of another.
    elsewhere = parser.add_mutually_exclusive_group()
    elsewhere.add_argument(
        "--airflow", action="store_true", help="do not run; write a DAG for Airflow 3 into the folder --output"
    )
    elsewhere.add_argument(
        "--kubeflow",
        action="store_true",
        help="do not run; write a pipeline for Kubeflow into --output FILE.yaml",
    )
    elsewhere.add_argument(
        "--vertex",
        action="store_true",
        help="do not run; write a spec for Vertex AI Pipelines into --output FILE.yaml",
    )
    parser.add_argument(
        "--submit",
        action="store_true",
        help="with --kubeflow or --vertex: submit it, as a run, or as the config's schedule",
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
    parser.add_argument("--resume", metavar="RUN", help="continue a run that ended early; `latest` is the newest one")
    parser.add_argument(
        "--force-bless",
        metavar="REASON",
        help="bless this run's model although thresholds fail; the reason is recorded",
    )
    parser.add_argument("--no-cache", action="store_true", help="run every node, also if nothing has changed")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")


def run(options: argparse.Namespace) -> int:
    """Runs the pipeline; returns the exit code.

    Raises:
      PipelineError: the run cannot start; with --json it is printed as a failed run instead.
    """
    for orchestrator in ORCHESTRATORS:
        if getattr(options, orchestrator):
            return write_for_orchestrator(orchestrator, options)
    if options.submit:
        raise InputError("--submit: expected --kubeflow or --vertex as well, received none", "name one of them")
    # Imported late, so that --help does not wait for them.
    from pipeline.cli.run_output import print_summary
    from pipeline.core.records import refused

    try:
        result, mode = _run(options)
    except PipelineError as error:
        if not options.json:
            raise
        result, mode = refused(error), "json"
    print_summary(result, mode)
    return result.exit_code


def _run(options: argparse.Namespace) -> tuple[RunResult, Mode]:
    from pipeline.cli import notifications
    from pipeline.core.records import refused

    if options.force_bless is not None and not options.force_bless.strip():
        raise InputError("--force-bless: expected a reason, received none", "give the reason; the verdict records it")
    loaded = load_config(options, *(["runtime.cache=false"] if options.no_cache else []))
    config = loaded.config
    _check_names([*options.from_nodes, *options.to_nodes], config.node_names())
    try:
        result, mode = _run_loaded(loaded, options)
    except PipelineError as error:
        notifications.send_run(config.notify, refused(error, pipeline=config.pipeline.name))
        raise
    notifications.send_run(config.notify, result)
    return result, mode


def _run_loaded(loaded: Loaded, options: argparse.Namespace) -> tuple[RunResult, Mode]:
    from components.ingest.input_size import estimate_local_size
    from pipeline.cli.reporting import REPORTING
    from pipeline.cli.run_output import ProgressDisplay
    from pipeline.orchestration import compiler, engines
    from pipeline.orchestration.local import scheduler

    # The fork server imports TensorFlow and TFX for some seconds; meanwhile the config is checked against the data.
    scheduler.start_server()
    check_before_run(loaded)

    config = loaded.config
    input_bytes = estimate_local_size(config.data)
    beam = engines.describe(config.runtime, input_bytes)
    if not options.json:
        sys.stdout.write("".join(f"{line}\n" for line in beam))
        sys.stdout.flush()
    output = config.paths().root
    job = scheduler.LocalJob(
        pipeline=config.pipeline.name,
        output=output,
        compile=functools.partial(compiler.compile_pipeline, config, options.force_bless, input_bytes),
        reporting=REPORTING,
        resume=options.resume,
        from_nodes=tuple(options.from_nodes),
        to_nodes=tuple(options.to_nodes),
        parallel=config.runtime.parallel_nodes or 0,
    )
    mode: Mode = "json" if options.json else "live" if sys.stdout.isatty() else "plain"
    with scheduler.exclusive_run(output, config.pipeline.name) if config.schedule else contextlib.nullcontext():
        return dataclasses.replace(scheduler.run(job, functools.partial(ProgressDisplay, mode)), beam=tuple(beam)), mode


def _check_names(names: list[str], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"--from/--to: the pipeline has no node {name!r}{did_you_mean(name, known)}",
                f"the nodes are {', '.join(known)}",
            )
