"""What ML Metadata remembers about the runs, read into small typed records; no other package asks it."""

from pipeline.metadata.store import Store

__all__ = ["Store"]
