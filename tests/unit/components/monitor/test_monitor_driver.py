"""The cache key of the monitor's inputs."""

from __future__ import annotations

import os
from pathlib import Path

from components.monitor import driver


def test_file_written_again_within_a_second_is_another(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    described = []
    for nanoseconds in (1, 2, 2):
        path.write_text("x")
        os.utime(path, ns=(1_600_000_000 * 10**9 + nanoseconds,) * 2)
        described.append(list(driver._described([str(path), str(tmp_path / "gone")])))
    assert described == [[f"{path} 1 {1_600_000_000 * 10**9 + nanoseconds}"] for nanoseconds in (1, 2, 2)]
