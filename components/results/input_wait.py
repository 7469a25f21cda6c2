"""The time that a training waited for input, as custom properties of its ModelRun."""

from __future__ import annotations

from collections.abc import Mapping

SECONDS, WAITED = "training_seconds", "input_wait_percent"
"""Names of the properties: the duration of the training, and the share of it in percent, both rounded."""
_MOST_WAITED = 20
_LEAST_SECONDS = 30
"""A shorter training mostly waits for its first batch, which is no reason to change anything."""


def describe(counts: Mapping[str, int]) -> str | None:
    """Describe a training that waited too long, with a remedy; None for others.

    Args:
      counts: Property → its value.
    """
    waited = counts.get(WAITED, 0)
    if waited < _MOST_WAITED or counts.get(SECONDS, 0) < _LEAST_SECONDS:
        return None
    return (
        f"the training waited for input in {waited} % of its time: raise training.memory_mb, so that rows or pixels "
        "stay in memory, or give the machine more cores"
    )
