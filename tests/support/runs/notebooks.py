"""Execute a notebook of the project in a folder, with a real kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "notebooks"


def execute(name: str, folder: Path) -> list[str]:
    """Execute all cells of a notebook.

    Args:
      name: Name of the notebook without `.ipynb`.
      folder: Working directory of the kernel.

    Returns:
      For each output in the order of the cells, its plain text.

    Raises:
      nbclient.exceptions.CellExecutionError: A cell raised an exception.
    """
    # Only the older release line installs it, with TFX.
    import nbformat

    return _execute(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4), folder)


def execute_cells(cells: Sequence[str], folder: Path) -> list[str]:
    """Execute cells of code; see `execute`."""
    from nbformat import v4

    return _execute(v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells]), folder)


def _execute(notebook: Any, folder: Path) -> list[str]:
    from nbclient import NotebookClient

    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [_read_text(output) for output in outputs]


def _read_text(output: Any) -> str:
    return str(output.text if "text" in output else output.data["text/plain"])
