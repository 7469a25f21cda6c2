"""Tests of reading Parquet rows as arrays: a batch reads only the row groups it needs, and types are checked."""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from components.base.errors import MachineError
from components.data.parallel_reads import READERS
from components.data.row_groups import RowGroup, row_groups
from components.features import feature_names
from components.trainer import parquet_rows
from components.trainer.parquet_rows import Column, Lists, Rows, Shard, ShuffledShard, join, part, read

pytestmark = pytest.mark.both_lines

ID = Column("id", "int64", 1)


def write(folder: Path, rows: int, group: int) -> list[RowGroup]:
    path = str(folder / "rows.parquet")
    ids = pa.array([[row] for row in range(rows)], pa.large_list(pa.int64()))
    parquet.write_table(pa.table({"id": ids}), path, row_group_size=group)
    return row_groups([path])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Record the numbers of the row groups that are read, and return the list.

    Threads of an earlier test may still read that test's files.
    """
    numbers: list[int] = []

    def read_and_record(group: RowGroup, columns: list[Column]) -> Rows:
        if Path(group.path).parent == tmp_path:
            numbers.append(group.number)
        return read(group, columns)

    monkeypatch.setattr(parquet_rows, "read", read_and_record)
    return numbers


def await_next_window(shard: ShuffledShard) -> None:
    assert shard._next is not None
    shard._next[1].result()


def batch(shard: ShuffledShard, number: int) -> Any:
    """Return the IDs in a batch of 5 rows."""
    return shard.read(5 * number, 5 * number + 5)[0]


def test_epoch_reads_each_row_group_once(tmp_path: Path, reads: list[int]) -> None:
    shard = ShuffledShard(Shard(write(tmp_path, 100, 10), [ID], 0, 1), seed=1, buffer=25)
    rows = list(chain.from_iterable(batch(shard, number).tolist() for number in range(20)))
    assert sorted(rows) == list(range(100))
    await_next_window(shard)
    # The first window of the next epoch, of at most 3 row groups, is read meanwhile.
    assert set(reads) == set(range(10))
    assert len(reads) <= 13
    assert rows != list(range(100))


def test_later_batch_only_reads_its_window(tmp_path: Path, reads: list[int]) -> None:
    groups = write(tmp_path, 100, 10)
    shards = [ShuffledShard(Shard(groups, [ID], 1, 3), seed=1, buffer=12) for _ in range(2)]
    expected = [batch(shards[0], number).tolist() for number in range(60)]
    reads.clear()
    assert batch(shards[1], 59).tolist() == expected[59]
    await_next_window(shards[1])
    # A batch lies in at most 2 windows of at most 12 rows, and the next window is read in advance.
    assert len(reads) <= 6
    assert batch(shards[0], 3).tolist() == expected[3]


def test_row_groups_are_read_in_parallel_and_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read waits until four reads have begun; the second window is read without a request for its batches."""
    together, started = threading.Barrier(READERS), threading.Semaphore(0)

    def read_together(group: RowGroup, columns: list[Column]) -> Rows:
        together.wait(timeout=60)
        started.release()
        return read(group, columns)

    groups = write(tmp_path, 80, 10)
    shard = ShuffledShard(Shard(groups, [ID], 0, 1), seed=1, buffer=40)
    expected = [shard.read(start, start + 10)[0].tolist() for start in range(0, 80, 10)]
    await_next_window(shard)
    monkeypatch.setattr(parquet_rows, "read", read_together)
    shard = ShuffledShard(Shard(groups, [ID], 0, 1), seed=1, buffer=40)
    assert shard.read(0, 10)[0].tolist() == expected[0]
    assert all(started.acquire(timeout=60) for _ in groups)
    assert [shard.read(start, start + 10)[0].tolist() for start in range(0, 80, 10)] == expected


def test_failed_read_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: RowGroup, columns: list[Column]) -> Rows:
        raise MachineError(f"{group.path}: lost connection", "run again")

    shard = ShuffledShard(Shard(write(tmp_path, 20, 5), [ID], 0, 1), seed=1, buffer=20)
    with monkeypatch.context() as patch:
        patch.setattr(parquet_rows, "read", fail)
        with pytest.raises(MachineError, match="lost connection"):
            shard.read(0, 20)
    assert sorted(shard.read(0, 20)[0].tolist()) == list(range(20))


def test_batch_does_not_change_when_the_next_window_is_read(tmp_path: Path) -> None:
    shard = ShuffledShard(Shard(write(tmp_path, 20, 5), [ID], 0, 1), seed=1, buffer=5)
    first = batch(shard, 0)
    before = first.copy()
    batch(shard, 1)
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("workers", [1, 3, 7])
def test_workers_share_the_rows_of_an_epoch(tmp_path: Path, workers: int) -> None:
    """The sizes of shards differ by at most one row, independently of the row groups."""
    groups = write(tmp_path, 25, 10)
    for index in range(workers):
        shard = Shard(groups, [ID], index, workers)
        assert shard.load()[0].tolist() == list(range(index, 25, workers))
    ends = [25 * worker // workers for worker in range(workers + 1)]
    epoch = [
        ShuffledShard(Shard(groups, [ID], index, workers), 1, 4).read(0, ends[index + 1] - ends[index])[0].tolist()
        for index in range(workers)
    ]
    assert sorted(chain(*epoch)) == list(range(25))


def test_lists_are_concatenated_and_ordered() -> None:
    lists = Lists(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
    order = np.array([3, 1, 2, 0])
    (joined,) = join([[lists], part([lists], slice(0, 1))], 4, order)
    assert isinstance(joined, Lists)
    assert [joined.values[slice(*joined.splits[row : row + 2])].tolist() for row in range(4)] == [
        [1, 2],
        [],
        [3],
        [1, 2],
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([[1], [2, 3]], pa.large_list(pa.int64())), "expected 1 values in every row"),
        (pa.array([[1], None], pa.large_list(pa.int64())), "expected 1 values in every row"),
        (pa.nulls(2, pa.null()), "expected 1 values in every row"),
        (pa.array([[1.0], [2.0]], pa.large_list(pa.float32())), r"expected large_list<item: int64>.*, received"),
    ],
)
def test_column_that_the_graph_does_not_describe_is_an_error(tmp_path: Path, values: pa.Array, message: str) -> None:
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(pa.table({"id": values}), path)
    with pytest.raises(MachineError, match=f"column id: {message}"):
        read(row_groups([path])[0], [ID])


def test_column_without_values_consists_of_empty_lists(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    parquet.write_table(pa.table({"id": pa.nulls(2)}), path)
    (lists,) = read(row_groups([path])[0], [Column("id", "int64", None)])
    assert isinstance(lists, Lists)
    assert lists.splits.tolist() == [0, 0, 0]


def test_columns_of_a_matrix_are_read_into_one_array(tmp_path: Path) -> None:
    """The matrix also contains the fold, which is computed instead of read from the files."""
    path = str(tmp_path / "rows.parquet")
    data = np.random.default_rng(0).integers(0, 9, [8, 5])
    tags = [[b"a"] * (row % 3) for row in range(8)]
    values = {name: pa.array(data[:, [index]].tolist(), pa.large_list(pa.int64())) for index, name in enumerate("abc")}
    values |= {"pair": pa.array(data[:, 3:].tolist(), pa.large_list(pa.int64()))}
    parquet.write_table(pa.table({**values, "tags": pa.array(tags, pa.large_list(pa.large_binary()))}), path)
    columns = [Column("a", "int64", 1, "/int64"), Column("pair", "int64", 2, "/int64/2"), ID._replace(name="b")]
    columns += [Column(feature_names.FOLD, "int64", 1, "/int64"), Column("tags", "string", None)]
    columns += [Column("c", "int64", 1, "/int64")]
    folds, mask = np.arange(8), data[:, 0] > 3
    shard = Shard(row_groups([path]), columns, 0, 1, [mask], [folds])
    numbers, pairs, single, lists = shard.load()
    expected = np.stack([data[:, 0], folds, data[:, 2]], axis=1)[mask]
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(pairs, data[mask][:, np.newaxis, 3:])
    np.testing.assert_array_equal(single, data[mask, 1])
    assert isinstance(lists, Lists)
    np.testing.assert_array_equal(np.diff(lists.splits), (np.arange(8) % 3)[mask])


def test_memory_of_encoded_images_is_their_size(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = pa.array([[random.bytes(10_000)] for _ in range(6)], pa.large_list(pa.large_binary()))
    texts = pa.array([[b"a"]] * 6, pa.large_list(pa.large_binary()))
    parquet.write_table(pa.table({"image": images, "text": texts}), tmp_path / "rows.parquet", row_group_size=3)
    for group in row_groups([str(tmp_path / "rows.parquet")]):
        assert 30_000 < group.memory < 31_000
