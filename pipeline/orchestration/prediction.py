"""Batch prediction by itself, without a run: the files, the engine and the folder of `predictor.batch_prediction`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfx.dsl.io import fileio

from components.base.errors import InputError
from components.base.files import is_remote
from components.data import file_io
from components.ingest import input_files
from components.ingest.config import DataConfig
from components.ingest.input_size import estimate_local_size
from components.predictor import batch_prediction, model_interface
from components.predictor.batch_prediction import Predictions
from components.predictor.bigquery_table import NewTable
from components.predictor.config import OutputFormat
from components.predictor.plan import PredictionPlan
from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration import engines


def predict(
    model: str,
    provenance: Mapping[str, Any],
    data: DataConfig,
    runtime: RuntimeConfig,
    output: str,
    *,
    columns: tuple[str, ...] = (),
    format_: OutputFormat = "parquet",
    signature: str | None = None,
) -> Predictions:
    """Write the predictions of a SavedModel into a new folder.

    Args:
      model: folder of the SavedModel.
      provenance: what the manifest says about the model.
      data: the rows, and how they are read.
      runtime: the engine.
      output: the folder. A local one appears when it is complete; in an object store its manifest comes last.
      columns: columns of the rows to write beside the predictions.
      format_: of the files.
      signature: the signature to call; None: see `model_interface.read`.

    Raises:
      InputError: the folder exists; or the model, the files or the columns do not fit.
      MachineError: Beam's workers write to another disk.
    """
    interface = model_interface.read(model, signature)
    with input_files.errors_about("--data"):
        files = [path for paths in input_files.files(data).values() for path in paths]
        format_of_rows = input_files.find(data).format
    plan = PredictionPlan(ingest=data.ingest(format_of_rows), columns=columns, format=format_)
    arguments = [*engines.beam_args(runtime), *engines.worker_args(runtime, estimate_local_size(data))]
    with _new_folder(output) as folder:
        return batch_prediction.predict(
            files, plan, interface, provenance, folder, lambda: beam.Pipeline(options=PipelineOptions(arguments))
        )


def predict_to_table(
    model: str,
    provenance: Mapping[str, Any],
    data: DataConfig,
    runtime: RuntimeConfig,
    table: NewTable,
    temp_location: str | None,
    *,
    columns: tuple[str, ...] = (),
    signature: str | None = None,
) -> tuple[Predictions, str]:
    """Write the predictions of a SavedModel into a new table of BigQuery.

    Args:
      model: folder of the SavedModel.
      provenance: what the table's description says about the model.
      data: the rows, and how they are read.
      runtime: the engine.
      table: the table; its description has the fields of _manifest.json.
      temp_location: the gs:// folder for the files that BigQuery loads, which are removed; None: a temporary folder of
        this machine, from which they are uploaded.
      columns: columns of the rows to write beside the predictions.
      signature: the signature to call; None: see `model_interface.read`.

    Returns:
      The predictions, without files, and the id of the job that loaded them.

    Raises:
      InputError: the model, the files or the columns do not fit; BigQuery does not take the rows; or the table was
        created in the meantime.
      MachineError: Beam's workers write to another disk, or BigQuery cannot be reached.
    """
    with _temporary_folder(temp_location) as folder:
        output = file_io.join(folder, "predictions")
        predictions = predict(model, provenance, data, runtime, output, columns=columns, signature=signature)
        with file_io.open_binary(file_io.join(output, batch_prediction.MANIFEST)) as file:
            manifest = json.loads(file.read())
        # The table has the columns; the files are temporary; and a description has a limited length.
        described = {name: manifest[name] for name in ("created", "model", "rows", "predicted", "quarantined")}
        files = [file_io.join(output, name) for name in predictions.files]
        job = table.load(files, {**described, "data": list(data.path), "tensorflow": manifest["tensorflow"]})
    return dataclasses.replace(predictions, files={}), job


@contextlib.contextmanager
def _temporary_folder(location: str | None) -> Iterator[str]:
    if location is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    remote = file_io.join(location, f"predictions-{uuid.uuid4().hex}")
    try:
        yield remote
    finally:
        if fileio.exists(remote):
            fileio.rmtree(remote)


@contextlib.contextmanager
def _new_folder(path: str) -> Iterator[str]:
    """Yield a folder that becomes `path` when the block ends; in an object store, which cannot rename, `path`."""
    if fileio.exists(path) and (not fileio.isdir(path) or fileio.listdir(path)):
        raise InputError(f"--into: expected a new folder, received {path}, which exists", "name another folder")
    if is_remote(path):
        fileio.makedirs(path)
        yield path
        return
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        made.mkdir()
        yield str(made)
        made.replace(target)
