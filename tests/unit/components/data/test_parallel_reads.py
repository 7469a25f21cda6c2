"""Parts of files are read in parallel, in order, and not further ahead than memory allows."""

from __future__ import annotations

import threading

import pytest

from components.data.parallel_reads import read_in_parallel


def test_results_have_the_order_of_the_parts_and_are_bounded() -> None:
    together, begun = threading.Barrier(3), []

    def read(part: int) -> int:
        begun.append(part)
        together.wait(timeout=60)
        return part * part

    results = read_in_parallel(read, range(9), 3)
    for part in range(7):
        assert next(results) == part * part
        # At most three parts are read ahead.
        assert len(begun) <= part + 3
    assert list(results) == [49, 64]
    assert sorted(begun) == list(range(9))


def test_a_single_reader_reads_a_part_when_it_is_needed() -> None:
    begun: list[int] = []
    results = read_in_parallel(begun.append, range(3), 1)
    assert begun == []
    next(results)
    assert begun == [0]


def test_error_of_a_part_ends_the_reads() -> None:
    begun: list[int] = []

    def read(part: int) -> int:
        begun.append(part)
        if part == 1:
            raise OSError("lost connection")
        return part

    results = read_in_parallel(read, range(100), 2)
    assert next(results) == 0
    with pytest.raises(OSError, match="lost connection"):
        list(results)
    assert len(begun) <= 4
    assert list(read_in_parallel(read, [], 2)) == []
