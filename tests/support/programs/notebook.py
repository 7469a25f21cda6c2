"""Runs the cells of notebooks/history.ipynb one after the other, in a folder with runs below out/.

Reads {"notebook": …, "folder": …}; writes the values of the notebook's variables.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main(notebook: Path, folder: Path) -> dict[str, Any]:
    """Run all cells, and print the values of their variables."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    os.chdir(folder)
    script = folder / "notebook.py"
    script.write_text("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    variables = runpy.run_path(str(script))
    return {
        "runs": len(variables["runs"]),
        "nodes": variables["nodes"]["node"].tolist(),
        "columns": variables["columns"].index.tolist(),
        "made_from": [artifact.type for artifact in variables["made_from"].artifacts.values()],
    }


if __name__ == "__main__":
    request = json.load(sys.stdin)
    sys.stdout.write(json.dumps(main(Path(request["notebook"]), Path(request["folder"]))) + "\n")
