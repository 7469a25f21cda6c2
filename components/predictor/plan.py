"""The plan of Predictor: the settings in its cache key, which also contains the files and the model."""

from __future__ import annotations

from components.base.config_section import Section
from components.ingest.config import IngestConfig
from components.predictor.config import OutputFormat


class PredictionPlan(Section):
    """How rows are read, and how predictions are written."""

    ingest: IngestConfig
    """How the files are read."""
    columns: tuple[str, ...] = ()
    """Columns that are copied from the rows to the predictions."""
    format: OutputFormat = "parquet"
    """The file format of the predictions."""
    code: str = ""
    """Digest of the node's code, so that the node runs again when its code changes."""
