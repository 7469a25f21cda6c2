"""The ML Metadata store: its location, connections, read model and maintenance.

No other package accesses the store directly.
"""

from __future__ import annotations

from pipeline.core.metadata.store import Store

__all__ = ["Store"]
