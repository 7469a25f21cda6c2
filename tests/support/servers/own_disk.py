"""The project's command on a worker with a separate disk: a new empty folder hides a folder of this machine.

The namespace of mounts belongs to the command, so that other workers and the test do not see what it writes there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli import main as run_command
from tests.support.programs import forked_export_check
from tests.support.servers.private_namespaces import replace_folder

_FOLDER, _DISKS = "OWN_DISK_FOLDER", "OWN_DISK_DISKS"


def make_environment(folder: Path, disks: Path) -> dict[str, str]:
    """Return environment variables for `main`.

    Args:
      folder: Folder that every worker has on its own disk.
      disks: Folder for the content of the disks, with a subfolder per command, whose name begins with the node.
    """
    folder.mkdir(parents=True)
    disks.mkdir()
    return {_FOLDER: str(folder), _DISKS: str(disks)}


def main(arguments: Sequence[str]) -> int:
    """Run a command of the project on a new disk."""
    node = arguments[arguments.index("--node") + 1] if "--node" in arguments else arguments[0]
    disk = Path(tempfile.mkdtemp(prefix=f"{node}-", dir=os.environ[_DISKS]))
    replace_folder(Path(os.environ[_FOLDER]), disk)
    # A fork of another process would not see this disk.
    forked_export_check.use(sys.executable)
    return int(run_command(arguments))


def list_files(disks: Path, artifacts: str = "") -> dict[str, set[str]]:
    """Return node → the files of artifacts on the disk of the node's command, relative to the artifacts' root.

    Args:
      disks: Folder with the content of the disks.
      artifacts: Root of the artifacts, relative to the folder that the disk replaces.
    """
    files: dict[str, set[str]] = {}
    for disk in disks.iterdir():
        root = disk / artifacts
        paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        names = {str(path) for path in paths if ".system" not in path.parts}
        files.setdefault(disk.name.rpartition("-")[0], set()).update(names)
    return files
