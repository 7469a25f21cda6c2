"""What predictions depend on beside the files and the model: the cache key of Predictor."""

from __future__ import annotations

from components.config_section import Section
from components.ingest.config import IngestConfig
from components.predictor.config import OutputFormat


class PredictionPlan(Section):
    """How rows are read, and what is written."""

    ingest: IngestConfig
    """How the files are read."""
    columns: tuple[str, ...] = ()
    """Columns that are passed through."""
    format: OutputFormat = "parquet"
    """The format of the predictions."""
    code: str = ""
    """Digest of the code of the node."""
