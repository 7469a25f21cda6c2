"""`runner.py run`: run the pipeline on this machine, or write it for Airflow, Kubeflow or Vertex AI Pipelines."""

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

from components.base.errors import InputError, PipelineError
from components.base.names import did_you_mean
from components.base.registry import describe_origin
from pipeline.cli.options import DEFAULT_CONFIG, Arguments, add_config, add_engine, check_before_run, load_config
from pipeline.cli.output import show, suppress_native_stderr
from pipeline.core import addons

if TYPE_CHECKING:
    from pipeline.authoring.config import Loaded
    from pipeline.cli.run_output import Mode
    from pipeline.core.records import RunResult


def write_for_orchestrator(orchestrator: str, options: argparse.Namespace) -> int:
    """Write the pipeline for another orchestrator, and submit it with --submit.

    Args:
      orchestrator: `airflow`, `kubeflow`, `vertex`, or the name that an installed package adds.
      options: The parsed command line. --output and --set are changed in place.

    Returns:
      The exit code.

    Raises:
      InputError: The options, the config or the data are not valid for the orchestrator, or the output cannot be
        written.
      MachineError: A program or service that --submit needs is missing or does not answer.
    """
    path, options.output = options.output, None
    added = functools.partial(_write_added, orchestrator)
    write, output, _ = _ORCHESTRATORS.get(orchestrator, (added, "PATH", ""))
    if path is None:
        raise InputError(f"--{orchestrator}: expected --output, received none", f"add --output {output}")
    if options.local or options.resume or options.from_nodes or options.to_nodes or options.json:
        raise InputError(
            f"--{orchestrator}: expected no option that applies to a run on this machine, received one",
            "remove --local, --resume, --from, --to and --json",
        )
    if options.force_bless is not None:
        raise InputError(
            f"--{orchestrator}: --force-bless applies to a single run, but an orchestrator starts many",
            "remove --force-bless",
        )
    # Only --set is passed on to the orchestrator; see _make_arguments.
    options.set += ["runtime.cache=false"] if options.no_cache else []
    return write(Path(path), options)


def _write_airflow(folder: Path, options: argparse.Namespace) -> int:
    from pipeline.orchestration import airflow

    if options.submit:
        raise InputError("--submit: Airflow reads its folder of DAGs by itself", "remove --submit")
    loaded = load_config(options)
    check_before_run(loaded)
    with suppress_native_stderr():
        dag = airflow.write(loaded.config, _make_arguments(Path(options.config).absolute(), options), folder)
    show(f"{dag}: a task per node; the files that it reads are in {dag.with_suffix('')}")
    return 0


def _write_kubeflow(file: Path, options: argparse.Namespace) -> int:
    from pipeline.authoring import preflight
    from pipeline.orchestration import compiler, kubeflow

    # Compile into a temporary folder, because only the graph is needed: each container compiles the pipeline again.
    with tempfile.TemporaryDirectory() as scratch:
        loaded = load_config(options, f"runtime.output={scratch}")
        config = loaded.config
        section = kubeflow.check(config)
        with suppress_native_stderr():
            preflight.check_data(loaded)
            graph = compiler.graph(config)
    arguments = _make_arguments(_get_path_in_image(options.config), options)
    classifies = config.data.task in ("binary", "multiclass") and not config.data.labels
    kubeflow.write(kubeflow.Job(config.pipeline.name, graph, arguments, section, config.schedule, classifies), file)
    show(
        f"{file}: {len(graph)} nodes, each a container of {section.image}",
        *map("note: {}".format, kubeflow.list_warnings(config, section)),
    )
    if options.submit:
        show(kubeflow.submit(config, section, file))
    return 0


def _write_vertex(file: Path, options: argparse.Namespace) -> int:
    from pipeline.authoring import preflight
    from pipeline.orchestration import vertex

    loaded = load_config(options)
    vertex.check(loaded.config)
    # Reading data from a bucket imports TensorFlow, which logs to stderr.
    with suppress_native_stderr():
        preflight.check_data(loaded)
        spec = vertex.write(loaded.config, file)
    tasks = len(spec["root"]["dag"]["tasks"])
    show(f"{file}: {tasks} tasks for Vertex AI Pipelines", *map("note: {}".format, vertex.list_warnings(loaded.config)))
    if options.submit:
        with suppress_native_stderr():
            from pipeline.orchestration import vertex_client
        show(*vertex_client.submit(loaded.config, spec))
    return 0


def _write_added(name: str, path: Path, options: argparse.Namespace) -> int:
    """Write the pipeline for the orchestrator of an installed package."""
    write = addons.ORCHESTRATORS[name]
    if options.submit:
        raise InputError(f"--submit: expected --kubeflow or --vertex with it, received --{name}", "remove --submit")
    loaded = load_config(options)
    check_before_run(loaded)
    with suppress_native_stderr():
        file = write(loaded.config, _make_arguments(Path(options.config).absolute(), options), path)
    show(f"{file}: the pipeline for {name}")
    return 0


_ORCHESTRATORS: dict[str, tuple[Callable[[Path, argparse.Namespace], int], str, str]] = {
    "airflow": (
        _write_airflow, "DAGS, the folder that Airflow reads", "write a DAG for Airflow 3 into the folder --output"
    ),
    "kubeflow": (_write_kubeflow, "FILE.yaml", "write a pipeline for Kubeflow into --output FILE.yaml"),
    "vertex": (_write_vertex, "FILE.yaml", "write a spec for Vertex AI Pipelines into --output FILE.yaml"),
}  # fmt: skip
"""Orchestrator → the function that writes the pipeline for it, the value of --output for messages, and the help."""


def _make_arguments(config: Path, options: argparse.Namespace) -> tuple[str, ...]:
    """Return the arguments of `runner.py` that select the same pipeline on another machine."""
    engine = () if options.engine is None else ("--set", f"runtime.engine={options.engine}")
    overrides = (word for assignment in options.set for word in ("--set", assignment))
    return ("--config", str(config), *overrides, *engine)


def _get_path_in_image(config: str) -> Path:
    """Return the path of a config in the image, whose working directory is a copy of the present one."""
    path = Path(config)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


HELP = "Run the pipeline on this machine, from raw rows to a pushed model."
EXAMPLE = "python runner.py run --config configs/mine.yaml --set training.steps=200"


def add_arguments(parser: Arguments) -> None:
    parser.add_argument("--local", action="store_true", help="run on this machine (the default)")
    # --output is a folder for Airflow, but a file for the other orchestrators.
    orchestrators = parser.add_mutually_exclusive_group()
    texts = {name: text for name, (_, _, text) in _ORCHESTRATORS.items()}
    for name in addons.ORCHESTRATORS:
        package = describe_origin(addons.ORCHESTRATORS, name)
        texts[name] = f"write files for {name} into --output; added by {package}"
    for name, text in texts.items():
        orchestrators.add_argument(f"--{name}", action="store_true", help=f"do not run; {text}")
    parser.add_argument(
        "--submit",
        action="store_true",
        help="with --kubeflow or --vertex: also submit the pipeline, as a run or, if the config has one, as a schedule",
    )
    add_config(parser, DEFAULT_CONFIG)
    add_engine(parser)
    parser.add_argument(
        "--from",
        dest="from_nodes",
        metavar="NODE",
        action="append",
        default=[],
        help="start at this node, with the outputs of the latest run as its inputs",
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
    parser.add_argument("--no-cache", action="store_true", help="run every node, even if nothing has changed")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")


def run(options: argparse.Namespace) -> int:
    """Run the pipeline on this machine, or write it for an orchestrator.

    Returns:
      The exit code.

    Raises:
      PipelineError: The run cannot start. With --json the error is printed as a failed run instead.
    """
    for orchestrator in (*_ORCHESTRATORS, *addons.ORCHESTRATORS):
        if getattr(options, orchestrator.replace("-", "_")):
            return write_for_orchestrator(orchestrator, options)
    if options.submit:
        raise InputError("--submit: expected --kubeflow or --vertex as well, received none", "name one of them")
    # Imported late to keep --help fast.
    from pipeline.cli.run_output import print_summary
    from pipeline.core.records import make_refused_result

    try:
        result, mode = _run(options)
    except PipelineError as error:
        if not options.json:
            raise
        result, mode = make_refused_result(error), "json"
    print_summary(result, mode)
    return result.exit_code


def _run(options: argparse.Namespace) -> tuple[RunResult, Mode]:
    from pipeline.cli import notifications
    from pipeline.core.records import make_refused_result

    if options.force_bless is not None and not options.force_bless.strip():
        raise InputError("--force-bless: expected a reason, received none", "give the reason; the verdict records it")
    loaded = load_config(options, *(["runtime.cache=false"] if options.no_cache else []))
    config = loaded.config
    _check_node_names([*options.from_nodes, *options.to_nodes], config.node_names())
    try:
        result, mode = _run_loaded(loaded, options)
    except PipelineError as error:
        notifications.send_run(config.notify, make_refused_result(error, pipeline=config.pipeline.name))
        raise
    notifications.send_run(config.notify, result)
    return result, mode


def _run_loaded(loaded: Loaded, options: argparse.Namespace) -> tuple[RunResult, Mode]:
    from components.ingest.input_size import estimate_local_size
    from pipeline.cli.reporting import REPORTING
    from pipeline.cli.run_output import ProgressDisplay
    from pipeline.orchestration import compiler, engines
    from pipeline.orchestration.local import scheduler

    # The fork server imports TensorFlow and TFX, which takes seconds. Meanwhile this process checks the config against
    # the data.
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


def _check_node_names(names: list[str], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"--from/--to: the pipeline has no node {name!r}{did_you_mean(name, known)}",
                f"the nodes are {', '.join(known)}",
            )
