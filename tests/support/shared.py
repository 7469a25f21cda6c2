"""Results that tests in several processes share; the first process that asks creates them."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def find_session_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of this session, also those of its other processes."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Return the result of `make` from the first process that asked; other processes wait for it.

    Args:
      factory: Factory of the session.
      name: Name of the result.
      make: Function that receives an empty folder for its files and returns a picklable result. If it raises, the next
        process calls it again.
    """
    folder = find_session_folder(factory) / "shared" / name
    folder.parent.mkdir(exist_ok=True)
    result = folder.with_suffix(".pickle")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            # Left by a process that was killed.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                product = make(folder)
            except BaseException:
                shutil.rmtree(folder)
                raise
            result.write_bytes(pickle.dumps(product))
            return product
        loaded: Made = pickle.loads(result.read_bytes())  # noqa: S301 - written above
        return loaded
