"""TensorFlow and gRPC still read the switches of components/compat/grpc.py."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import tensorflow as tf
from grpc._cython import cygrpc

from components.compat.grpc import FAIL_FAST, OLDER_POLLING

pytestmark = pytest.mark.both_lines


def test_tensorflows_libraries_contain_the_name_of_the_switch() -> None:
    [name] = FAIL_FAST
    if not any(_contains(library, name) for library in Path(tf.__file__).parent.glob("libtensorflow_cc.so*")):
        pytest.fail(f"TensorFlow no longer reads {name}: remove FAIL_FAST and its uses")


def test_grpcs_library_contains_the_experiment() -> None:
    [experiment] = OLDER_POLLING.values()
    if not _contains(Path(cygrpc.__file__), experiment.removeprefix("-")):
        pytest.fail(f"gRPC no longer has the experiment {experiment[1:]}: remove OLDER_POLLING and its use")


def _contains(library: Path, name: str) -> bool:
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode()) >= 0
