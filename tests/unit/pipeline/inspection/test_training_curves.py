"""Tests for training curves in TensorBoard's event files, including truncated files and TensorFlow 1's format."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from pipeline.inspection.training_curves import read
from tests.support.runs.report_runs import frame, write_events


def test_name_of_the_folder_is_the_kind_of_the_curve(tmp_path: Path):
    write_events(tmp_path / "train", {"loss": [0.5, 0.25]})
    write_events(tmp_path / "eval", {"loss": [0.75]})
    assert read(tmp_path) == {"loss": {"train": [(10, 0.5), (20, 0.25)], "eval": [(10, 0.75)]}}


def test_values_of_tensorflow_1_are_read_and_texts_are_ignored(tmp_path: Path):
    event = event_pb2.Event(step=3)
    event.summary.value.add(tag="loss", simple_value=0.5)
    event.summary.value.add(tag="note").tensor.dtype = 7
    (tmp_path / "events.out.tfevents.1").write_bytes(frame(event.SerializeToString()))
    assert read(tmp_path) == {"loss": {".": [(3, 0.5)]}}


def test_points_without_a_number_are_omitted(tmp_path: Path):
    write_events(tmp_path / "train", {"loss": [math.nan, 0.5, math.inf]})
    assert read(tmp_path) == {"loss": {"train": [(20, 0.5)]}}


@pytest.mark.parametrize("removed_bytes", [1, 5, 20])
def test_truncated_file_loses_only_the_last_point(tmp_path: Path, removed_bytes: int):
    file = write_events(tmp_path / "train", {"loss": [0.5, 0.25]})
    file.write_bytes(file.read_bytes()[:-removed_bytes])
    assert read(tmp_path) == {"loss": {"train": [(10, 0.5)]}}


def test_invalid_records_are_ignored(tmp_path: Path):
    (tmp_path / "events.out.tfevents.1").write_bytes(frame(b"\xff\xff\xff"))
    assert read(tmp_path) == {}
