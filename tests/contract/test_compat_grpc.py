"""TensorFlow still reads the switch of components/compat/grpc.py."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import tensorflow as tf

from components.compat.grpc import FAIL_FAST

pytestmark = pytest.mark.both_lines


def test_tensorflows_libraries_contain_the_name_of_the_switch() -> None:
    [name] = (each.encode() for each in FAIL_FAST)
    for library in Path(tf.__file__).parent.glob("libtensorflow_cc.so*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(name) >= 0:
                return
    pytest.fail("TensorFlow no longer reads GRPC_FAIL_FAST: remove components/compat/grpc.py")
