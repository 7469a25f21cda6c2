"""Curves out of TensorBoard's event files, whole and torn, as either TensorFlow writes them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from report_runs import frame, write_events
from tensorboard.compat.proto import event_pb2

from pipeline.inspection.report.training_curves import read


def test_folder_is_a_kind_of_curve(tmp_path: Path):
    write_events(tmp_path / "train", {"loss": [0.5, 0.25]})
    write_events(tmp_path / "eval", {"loss": [0.75]})
    assert read(tmp_path) == {"loss": {"train": [(10, 0.5), (20, 0.25)], "eval": [(10, 0.75)]}}


def test_tensorflow_1s_values_count_too_and_texts_do_not(tmp_path: Path):
    event = event_pb2.Event(step=3)
    event.summary.value.add(tag="loss", simple_value=0.5)
    event.summary.value.add(tag="note").tensor.dtype = 7
    (tmp_path / "events.out.tfevents.1").write_bytes(frame(event.SerializeToString()))
    assert read(tmp_path) == {"loss": {".": [(3, 0.5)]}}


def test_points_without_a_number_are_omitted(tmp_path: Path):
    write_events(tmp_path / "train", {"loss": [math.nan, 0.5, math.inf]})
    assert read(tmp_path) == {"loss": {"train": [(20, 0.5)]}}


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_torn_end_costs_the_last_point_alone(tmp_path: Path, cut: int):
    file = write_events(tmp_path / "train", {"loss": [0.5, 0.25]})
    file.write_bytes(file.read_bytes()[:-cut])
    assert read(tmp_path) == {"loss": {"train": [(10, 0.5)]}}


def test_garbage_is_no_curve(tmp_path: Path):
    (tmp_path / "events.out.tfevents.1").write_bytes(frame(b"\xff\xff\xff"))
    assert read(tmp_path) == {}
