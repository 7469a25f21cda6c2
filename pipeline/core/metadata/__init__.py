"""The ML Metadata store: where it is, how it is opened, read and maintained; the only package that accesses it."""

from __future__ import annotations

from pipeline.core.metadata.store import Store

__all__ = ["Store"]
