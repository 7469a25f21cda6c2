"""The job file of a config: its Trainer, on the data of an earlier run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfx.dsl.io import fileio
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.portable import inputs_utils
from tfx.types import artifact_utils

from components.errors import InputError
from components.files import is_remote
from components.names import did_you_mean
from components.trainer.remote import job_file
from pipeline.authoring.config import Config
from pipeline.core.metadata.connection import read_only_config
from pipeline.core.metadata.location import exists
from pipeline.core.metadata.store import Store
from pipeline.orchestration.compiler import compile_pipeline
from pipeline.orchestration.node import graph, load, nodes_of


def path(to: str) -> str:
    """The job file of an output folder: an absolute path, or a URI if the folder is one."""
    folder = to.rstrip("/") if is_remote(to) else Path(to).absolute()
    return f"{folder}/job.json"


def write(config: Config, file: str, run: str | None = None, options: Sequence[str] = ()) -> list[str]:
    """Writes a job file: the Trainer of a config, on the examples, transform graph and schema of an earlier run.

    Args:
      config: the pipeline.
      file: path or URI; the Trainer's outputs go to the same folder.
      run: the run that made the inputs; None takes the newest one that has them.
      options: options of `runner.py` that run this pipeline, for the remedy if no run has the inputs.

    Returns:
      The URIs of the inputs.

    Raises:
      InputError: no run has the inputs, or the file exists with another job.
      MachineError: the metadata store does not open.
    """
    folder = file.rpartition("/")[0]
    before = ["Tuner" if config.tune else "Transform", *(["BaseModel"] if config.training.warm_start else [])]
    to = [word for node in before for word in ("--to", node)]
    command = shlex.join(["python", "runner.py", "--local", *options, *to])
    trainer, inputs = _trainer(config, run, f"run the pipeline first, at least this far: {command}")
    outputs = {
        key: [_output(spec.artifact_spec.type, f"{folder}/{key}")] for key, spec in trainer.outputs.outputs.items()
    }
    parameters = inputs_utils.resolve_parameters_with_schema(node_parameters=trainer.parameters)
    _write(file, job_file.write(inputs, outputs, data_types_utils.build_parsed_value_dict(parameters)))
    return sorted(artifact.uri for artifacts in inputs.values() for artifact in artifacts)


def _trainer(config: Config, run: str | None, remedy: str) -> tuple[Any, dict[str, list[Any]]]:
    """The Trainer's node, and its inputs in ML Metadata, by key."""
    store = config.paths().store
    if not exists(store):
        raise InputError(f"nothing to train on: {config.pipeline.name} has never run", remedy)
    ir = compile_pipeline(config)
    needed = next(set(node.upstream) for node in graph(ir) if node.id == "Trainer")
    trainer = nodes_of(load(ir, _run_with(needed, Store(store), config.pipeline.name, run, remedy)))["Trainer"]
    with metadata.Metadata(read_only_config(store)) as handle:
        [inputs] = inputs_utils.resolve_input_artifacts(pipeline_node=trainer, metadata_handle=handle)
    return trainer, inputs


def _run_with(needed: set[str], store: Store, pipeline: str, run: str | None, remedy: str) -> str:
    """The named run, or the newest one, in which all these nodes ended well."""
    runs = [each.name for each in store.runs(pipeline)]
    if run is not None and run not in runs:
        raise InputError(f"--run: {pipeline} has no run {run!r}{did_you_mean(run, runs)}", "omit --run for the newest")
    for candidate in runs if run is None else [run]:
        if needed <= {execution.node for execution in store.executions(candidate) if execution.succeeded}:
            return candidate
    which = f"run {run} has no outputs" if run else f"no run of {pipeline} has outputs"
    raise InputError(f"nothing to train on: {which} of {', '.join(sorted(needed))}", remedy)


def _output(artifact_type: Any, uri: str) -> Any:
    artifact = artifact_utils.deserialize_artifact(artifact_type)
    artifact.uri = uri
    return artifact


def _write(file: str, text: str) -> None:
    if fileio.exists(file):
        with fileio.open(file) as written:
            if written.read() != text:
                raise InputError(f"--to: {file} exists, with another job", "name a new folder, or remove this one")
    folder = file.rpartition("/")[0]
    fileio.makedirs(folder)
    with fileio.open(file, "w") as new:
        new.write(text)
