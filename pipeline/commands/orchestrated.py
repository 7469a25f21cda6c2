"""`runner.py --airflow`, `--kubeflow`, `--vertex`: writes what another orchestrator runs the pipeline by."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from components.errors import InputError
from pipeline.commands.options import load_config
from pipeline.commands.told import only_ours, show


def run(target: str, options: argparse.Namespace) -> int:
    """Writes it; returns the exit code.

    Raises:
      InputError: the options, the config or the data do not fit, or what is written cannot be.
      MachineError: what is needed to submit it is not there, or does not answer.
    """
    place, options.output = options.output, None
    write, wanted = _TARGETS[target]
    if place is None:
        raise InputError(f"--{target}: expected --output, received none", f"add --output {wanted}")
    if options.local or options.resume or options.from_nodes or options.to_nodes or options.json:
        raise InputError(
            f"--{target}: expected no option of a run on this machine, received one",
            "leave out --local, --from and so on",
        )
    if options.force_bless is not None:
        raise InputError(f"--{target}: one run's model is blessed by force, and this is for many", "leave it out")
    # As a field it is known wherever the config is.
    options.set += ["runtime.cache=false"] if options.no_cache else []
    return write(Path(place), options)


def _airflow(folder: Path, options: argparse.Namespace) -> int:
    from pipeline import preflight
    from pipeline.targets import airflow

    if options.submit:
        raise InputError("--submit: Airflow finds by itself what is written into its folder", "leave --submit out")
    loaded = load_config(options)
    preflight.check(loaded)
    with only_ours():
        dag = airflow.write(loaded.config, _given(Path(options.config).absolute(), options), folder)
    show(f"{dag}: a task per node; what it reads lies in {dag.with_suffix('')}")
    return 0


def _kubeflow(file: Path, options: argparse.Namespace) -> int:
    from pipeline import preflight
    from pipeline.targets import compiled, kubeflow

    # What is made on the way to the graph is thrown away: the containers compile for themselves.
    with tempfile.TemporaryDirectory() as nowhere:
        loaded = load_config(options, f"runtime.output={nowhere}")
        config = loaded.config
        section = kubeflow.check(config)
        with only_ours():
            preflight.check_data(loaded)
            graph = compiled.graph(config)
    given = _given(_in_image(options.config), options)
    kubeflow.write(kubeflow.Job(config.pipeline.name, graph, given, section, config.schedule), file)
    show(
        f"{file}: {len(graph)} nodes, each a container of {section.image}",
        *map("note: {}".format, kubeflow.notes(config, section)),
    )
    if options.submit:
        from pipeline.targets import kubeflow_client

        show(kubeflow_client.submit(config, section, file))
    return 0


def _vertex(file: Path, options: argparse.Namespace) -> int:
    from pipeline import preflight
    from pipeline.targets import vertex

    loaded = load_config(options)
    vertex.check(loaded.config)
    # The first look at data in a bucket imports TensorFlow.
    with only_ours():
        preflight.check_data(loaded)
        spec = vertex.write(loaded.config, file)
    tasks = len(spec["root"]["dag"]["tasks"])
    show(f"{file}: {tasks} tasks for Vertex AI Pipelines", *map("note: {}".format, vertex.unseen(loaded.config)))
    if options.submit:
        with only_ours():
            from pipeline.targets import vertex_jobs
        show(*vertex_jobs.submit(loaded.config, spec))
    return 0


_TARGETS: dict[str, tuple[Callable[[Path, argparse.Namespace], int], str]] = {
    "airflow": (_airflow, "DAGS, the folder that Airflow reads"),
    "kubeflow": (_kubeflow, "FILE.yaml"),
    "vertex": (_vertex, "FILE.yaml"),
}
"""Target → what writes for it, and what it is told as --output."""


def _given(config: Path, options: argparse.Namespace) -> tuple[str, ...]:
    """What `runner.py` takes elsewhere to run the same pipeline."""
    engine = () if options.engine is None else ("--set", f"runtime.engine={options.engine}")
    return ("--config", str(config), *(word for each in options.set for word in ("--set", each)), *engine)


def _in_image(config: str) -> Path:
    """Where a config of this folder is in the image, whose working folder holds the same."""
    here = Path(config)
    return here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
