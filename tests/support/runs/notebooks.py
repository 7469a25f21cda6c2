"""Execute a notebook of the project in a folder, with a real kernel."""

from __future__ import annotations

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
    # Only the older release line installs them, with TFX.
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [_read_text(output) for output in outputs]


def _read_text(output: Any) -> str:
    return str(output.text if "text" in output else output.data["text/plain"])
