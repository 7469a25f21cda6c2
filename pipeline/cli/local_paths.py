"""Argument types for options that name files and folders on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from components.base.files import is_remote


def parse_local_path(text: str) -> str:
    """Return the path of a local file or folder that a command writes.

    Raises:
      argparse.ArgumentTypeError: The text is a URL. Used as a path, it would create a local folder named `gs:`.
    """
    if is_remote(text):
        raise argparse.ArgumentTypeError(
            f"expected a path on this machine, received the URL {text}; name a local path, and copy the files, or set "
            "runtime.artifacts and push.base_path to URLs"
        )
    return text


def parse_local_file(text: str) -> Path:
    """Return the path of a local file or folder as a Path; see `parse_local_path`."""
    return Path(parse_local_path(text))
