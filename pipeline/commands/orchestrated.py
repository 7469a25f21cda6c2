"""`runner.py --airflow` and `--kubeflow`: writes what another orchestrator runs the pipeline by."""

from __future__ import annotations

import argparse
import tempfile
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
    wanted = {"airflow": "DAGS: the folder that Airflow reads", "kubeflow": "FILE.yaml"}[target]
    if place is None:
        raise InputError(f"--{target}: expected --output, received none", f"add --output {wanted}")
    if options.local or options.resume or options.from_nodes or options.to_nodes:
        raise InputError(
            f"--{target}: expected no option of a run on this machine, received one",
            "leave out --local, --from and so on",
        )
    return {"airflow": _airflow, "kubeflow": _kubeflow}[target](Path(place), options)


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
        preflight.check_data(loaded)
        with only_ours():
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


def _given(config: Path, options: argparse.Namespace) -> tuple[str, ...]:
    """What `runner.py` takes elsewhere to run the same pipeline."""
    engine = () if options.engine is None else ("--set", f"runtime.engine={options.engine}")
    return ("--config", str(config), *(word for each in options.set for word in ("--set", each)), *engine)


def _in_image(config: str) -> Path:
    """Where a config of this folder is in the image, whose working folder holds the same."""
    here = Path(config)
    return here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here
