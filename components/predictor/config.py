"""The `predict` section of the config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.base.config_section import Section, Texts
from components.ingest.config import SpansConfig

OutputFormat = Literal["parquet", "csv", "tfrecord"]


class PredictConfig(Section):
    """Batch prediction: the version that a run pushes predicts the rows of further files.

    The files are read as `data` says: format, types, bad rows. They must contain the columns that the model reads, but
    not the label.
    """

    path: Texts = Field(min_length=1)
    """Rows to predict: a file, a folder or a pattern, as in `data.path`."""
    spans: SpansConfig = SpansConfig()
    """Spans to read, if the path contains spans."""
    columns: Texts = ()
    """Columns of the rows that are copied to the predictions, such as a key."""
    format: OutputFormat = "parquet"
    """File format of the predictions. `tfrecord` stores tf.Examples."""
