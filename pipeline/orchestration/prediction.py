"""Run batch prediction without a pipeline run: find the files, choose the engine and create the output folder."""

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
      model: Folder of the SavedModel.
      provenance: Fields that describe the model in the manifest.
      data: Where the rows are and how they are read.
      runtime: Settings of the Beam engine.
      output: Folder to write. A local folder appears when it is complete. In an object store, the manifest is written
        last.
      columns: Columns of the rows to write next to the predictions.
      format_: Format of the files.
      signature: Signature to call. If None, see `model_interface.read`.

    Raises:
      InputError: The folder exists, or the model, the files or the columns do not match.
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
      model: Folder of the SavedModel.
      provenance: Fields that describe the model in the table's description.
      data: Where the rows are and how they are read.
      runtime: Settings of the Beam engine.
      table: Table to create. Its description gets the fields of _manifest.json.
      temp_location: gs:// folder for the files that BigQuery loads; they are removed afterwards. If None, the files are
        uploaded from a temporary folder on this machine.
      columns: Columns of the rows to write next to the predictions.
      signature: Signature to call. If None, see `model_interface.read`.

    Returns:
      The predictions, without files, and the ID of the load job.

    Raises:
      InputError: The model, the files or the columns do not match, BigQuery rejects the rows, or the table was created
        in the meantime.
      MachineError: Beam's workers write to another disk, or BigQuery cannot be reached.
    """
    with _temporary_folder(temp_location) as folder:
        output = file_io.join(folder, "predictions")
        predictions = predict(model, provenance, data, runtime, output, columns=columns, signature=signature)
        with file_io.open_binary(file_io.join(output, batch_prediction.MANIFEST)) as file:
            manifest = json.loads(file.read())
        # Columns and files are left out: the table shows the columns, the files are temporary, and the length of a
        # description is limited.
        description = {name: manifest[name] for name in ("created", "model", "rows", "predicted", "quarantined")}
        files = [file_io.join(output, name) for name in predictions.files]
        job = table.load(files, {**description, "data": list(data.path), "tensorflow": manifest["tensorflow"]})
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
    """Yield a folder that is renamed to `path` when the block ends; object stores cannot rename, so yield `path`."""
    if fileio.exists(path) and (not fileio.isdir(path) or fileio.listdir(path)):
        raise InputError(f"--into: expected a new folder, received {path}, which exists", "name another folder")
    if is_remote(path):
        fileio.makedirs(path)
        yield path
        return
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        folder = Path(scratch, target.name)
        folder.mkdir()
        yield str(folder)
        folder.replace(target)
