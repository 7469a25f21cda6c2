"""The `predict` section of the config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.config_section import Section
from components.ingest.config import SpansConfig, Texts

OutputFormat = Literal["parquet", "csv", "tfrecord"]


class PredictConfig(Section):
    """Batch prediction: what the version that a run has pushed predicts for the rows of other files.

    The files are read as `data` says: format, types, bad rows. They need the columns that the model reads, no label.
    """

    path: Texts = Field(min_length=1)
    """The rows to predict: a file, a folder or a pattern, as `data.path`."""
    spans: SpansConfig = SpansConfig()
    """The spans to read, if the path has any."""
    columns: Texts = ()
    """Columns of the rows to write beside the predictions, such as a key."""
    format: OutputFormat = "parquet"
    """The format of the predictions. tfrecord: tf.Examples."""
