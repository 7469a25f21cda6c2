"""Read the decisions of a binary model from the folder of its SavedModel."""

from __future__ import annotations

from components.data import file_io
from components.results.decision import FILE, Decision, Decisions


def read(folder: str) -> dict[str, Decision]:
    """Return name of a label, empty for the only label → its decision; empty for a model that returns no decision.

    Args:
      folder: Folder of the SavedModel, local or remote.
    """
    path = file_io.join(folder, FILE)
    if not file_io.file_system(folder).exists(path):
        return {}
    with file_io.open_binary(path) as file:
        return Decisions.from_json(file.read().decode()).labels
