"""Tests of checkpoints: the newest are retained, and the newest complete, undamaged checkpoint is restored."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.trainer import checkpoint
from components.trainer.checkpoint import Checkpoints
from tests.support.servers.in_fork_server import in_child, main_of


def save_steps(folder: Path, *steps: int, keep: int = 3) -> tuple[Checkpoints, Any]:
    weight = tf.Variable(tf.zeros([1000]))
    checkpoints = Checkpoints(str(folder), None, keep, weight=weight)
    for step in steps:
        weight.assign(tf.fill([1000], float(step)))
        checkpoints.save(step)
    return checkpoints, weight


def test_newest_checkpoint_is_restored(tmp_path: Path) -> None:
    save_steps(tmp_path, 10, 20)
    again, weight = save_steps(tmp_path)
    assert again.restore() == 20
    assert weight[0].numpy() == 20


def test_checkpoint_is_written_while_training_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, _ = save_steps(tmp_path, 10)
    goes_on, save = threading.Event(), checkpoints._manager.save

    def wait_and_save(**arguments: Any) -> None:
        assert goes_on.wait(60)
        save(**arguments)

    monkeypatch.setattr(checkpoints._manager, "save", wait_and_save)
    checkpoints.save(20, in_background=True)
    assert not checkpoints.is_written
    assert checkpoint.steps(str(tmp_path)) == [10]
    goes_on.set()
    # Saving in the foreground first waits for the checkpoint in the background.
    checkpoints.save(30)
    assert checkpoints.is_written
    assert checkpoint.steps(str(tmp_path)) == [30, 20, 10]


def test_error_of_a_background_checkpoint_is_raised_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, _ = save_steps(tmp_path, 10)

    def fail(**_arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints._manager, "save", fail)
    checkpoints.save(20, in_background=True)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(30, in_background=True)


@pytest.mark.both_lines
@pytest.mark.extended
def test_tables_and_moments_can_be_restored_on_another_number_of_servers(tmp_path: Path) -> None:
    two, three = (
        in_child(
            tmp_path / f"{servers}.log", main_of, "sharded_tables", str(tmp_path / "checkpoints"), servers, servers == 2
        )
        for servers in (2, 3)
    )
    for name in ("embedding_8/rows", "embedding_8/quotients", "embedding_4/rows", "wide/rows"):
        for part in (name, f"{name}/0", f"{name}/1"):
            np.testing.assert_array_equal(three[part], two[part])
            assert np.std(two[part]) > 0.5
    assert [len(tables["embedding_8/rows/shards"]) for tables in (two, three)] == [2, 3]
    for tables in (two, three):
        shards = tables["embedding_8/rows/shards"]
        assert len({*shards}) == len(shards), "a shard on each server"
        assert tables["embedding_8/rows/slots"][::2] == shards, "moments are where the rows are"


def test_training_without_a_checkpoint_begins_at_step_0(tmp_path: Path) -> None:
    assert save_steps(tmp_path / "none")[0].restore() == 0


def test_newest_checkpoints_are_retained(tmp_path: Path) -> None:
    save_steps(tmp_path, 10, 20, 30, 100, keep=2)
    assert checkpoint.steps(str(tmp_path)) == [100, 30]


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_damaged_checkpoint_is_skipped_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str) -> None:
    save_steps(tmp_path, 10, 20)
    data = tmp_path / "step-20.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    if harm == "truncate":
        data.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        content[100] ^= 1
        data.write_bytes(content)
    else:
        data.unlink()
    again, weight = save_steps(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert again.restore() == 10
    assert weight[0].numpy() == 10
    assert "step-20 is damaged; the previous checkpoint is used" in caplog.text


def test_memory_error_is_not_treated_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_steps(tmp_path, 10, 20)

    def fail(_path: str) -> None:
        raise MemoryError

    monkeypatch.setattr(checkpoint, "_read_through", fail)
    with pytest.raises(MemoryError):
        checkpoint.newest(str(tmp_path))


def test_existing_checkpoint_of_a_step_is_not_overwritten(tmp_path: Path) -> None:
    checkpoints, _ = save_steps(tmp_path, 10, keep=1)
    index = tmp_path / "step-10.index"
    written = index.stat().st_mtime_ns
    checkpoints.save(10)
    again, _ = save_steps(tmp_path, keep=1)
    again.restore()
    again.save(10)
    assert index.stat().st_mtime_ns == written


def test_training_begins_at_step_0_if_all_checkpoints_are_damaged(tmp_path: Path) -> None:
    save_steps(tmp_path, 10)
    (tmp_path / "step-10.data-00000-of-00001").write_bytes(b"")
    again, weight = save_steps(tmp_path)
    assert again.restore() == 0
    assert weight[0].numpy() == 0


def test_damaged_list_of_checkpoints_is_ignored(tmp_path: Path) -> None:
    save_steps(tmp_path, 10)
    (tmp_path / "checkpoint").write_text("nonsense")
    assert checkpoint.newest(str(tmp_path)) == 10


def test_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    save_steps(tmp_path, 10)
    (tmp_path / "step-20.data-00000-of-00001").write_bytes(b"half")
    (tmp_path / "step-20_temp").mkdir()
    assert checkpoint.steps(str(tmp_path)) == [10]


def test_only_the_lead_writes_the_checkpoints_that_are_restored(tmp_path: Path) -> None:
    weight = tf.Variable([1.0])
    Checkpoints(str(tmp_path / "shared"), str(tmp_path / "own"), 3, weight=weight).save(10)
    assert checkpoint.steps(str(tmp_path / "shared")) == []
    assert checkpoint.steps(str(tmp_path / "own")) == [10]
