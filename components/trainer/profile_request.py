"""The request to profile a running training: a file in the folder of TensorBoard's files.

A file works for every strategy and orchestrator, and on remote storage. TensorFlow's profiler server, which
TensorBoard's own button asks, would listen on all network interfaces without authentication.
"""

from __future__ import annotations

import json
from pathlib import Path

from components.base.errors import InputError
from components.base.files import is_remote, write_atomically
from components.data import file_io

_FILE = "profile_request.json"


def write(folder: str, steps: int) -> None:
    """Request a profile of the next steps.

    Args:
      folder: Folder of a ModelRun.
      steps: Number of steps.
    """
    path, content = _path(folder), json.dumps({"steps": steps}).encode()
    if not is_remote(path):
        write_atomically(Path(path), content)
        return
    with file_io.create(path) as file:
        file.write(content)


def take(folder: str) -> int | None:
    """Return the number of steps to profile, and remove the request; None if there is no request.

    Raises:
      InputError: If the file was not written by `write`.
    """
    path = _path(folder)
    if not file_io.file_system(path).exists(path):
        return None
    with file_io.open_binary(path) as file:
        content = file.read()
    file_io.remove(path)
    try:
        return int(json.loads(content)["steps"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: expected the number of steps, received {content!r}", "use runs profile") from error


def _path(folder: str) -> str:
    return file_io.join(folder, _FILE)
