"""Tests of the fingerprint of Monitor's input files, which is part of its cache key."""

from __future__ import annotations

import os
from pathlib import Path

from components.monitor import driver


def test_file_rewritten_within_a_second_changes_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    descriptions = []
    for nanoseconds in (1, 2, 2):
        path.write_text("x")
        os.utime(path, ns=(1_600_000_000 * 10**9 + nanoseconds,) * 2)
        descriptions.append(list(driver._describe_files([str(path), str(tmp_path / "gone")])))
    assert descriptions == [[f"{path} 1 {1_600_000_000 * 10**9 + nanoseconds}"] for nanoseconds in (1, 2, 2)]
