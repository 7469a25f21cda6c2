"""Batch prediction by itself, without a run: the files, the engine and the folder of `predictor.batch_prediction`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from tfx.dsl.io import fileio

from components.errors import InputError
from components.files import is_remote
from components.ingest import input_files
from components.ingest.config import DataConfig
from components.predictor import batch_prediction, model_interface
from components.predictor.batch_prediction import Predictions
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
    """Writes the predictions of a SavedModel into a new folder.

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
    arguments = [*engines.beam_args(runtime), *engines.worker_args(runtime, input_files.local_size(data))]
    with _new_folder(output) as folder:
        return batch_prediction.predict(
            files, plan, interface, provenance, folder, lambda: beam.Pipeline(options=PipelineOptions(arguments))
        )


@contextlib.contextmanager
def _new_folder(path: str) -> Iterator[str]:
    """A folder that becomes `path` when the block ends; in an object store, where nothing is renamed, `path` itself."""
    if fileio.exists(path) and (not fileio.isdir(path) or fileio.listdir(path)):
        raise InputError(f"--output: expected a new folder, received {path}, which exists", "name another folder")
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
