"""Types of options that name files and folders on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from components.files import is_remote


def local_path(text: str) -> str:
    """Return the path of a file or folder on this machine that a command writes.

    Raises:
      argparse.ArgumentTypeError: it is a URL, which would become a folder of this machine.
    """
    if is_remote(text):
        raise argparse.ArgumentTypeError(
            f"expected a path on this machine, received the URL {text}; name a local path, and copy the files, or set "
            "runtime.artifacts and push.base_path to URLs"
        )
    return text


def local_file(text: str) -> Path:
    """Return `local_path` as a Path."""
    return Path(local_path(text))
