"""Probe rows: the same each time, with every kind of value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.trainer.probe_rows import MISSING_INT, ProbeRows, probe_rows

COLUMNS = {"fare": "log", "company": "vocab", "area": "vocab", "user": {"hash": {"buckets": 10}}, "count": "z_score"}
SPECS = {
    "fare": tf.io.VarLenFeature(tf.float32),
    "company": tf.io.VarLenFeature(tf.string),
    "area": tf.io.VarLenFeature(tf.int64),
    "user": tf.io.VarLenFeature(tf.string),
    "count": tf.io.FixedLenFeature([1], tf.int64),
}


class Vocabularies:
    """A transform graph with vocabulary files only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "company_vocab").write_bytes("Łódź Cabs\nBlue Line\n".encode())
        (folder / "area_vocab").write_bytes(b"8\n32\n-7\n")

    def vocabulary_file_by_name(self, name: str) -> str:
        return str(self._folder / name)


@pytest.fixture
def made(tmp_path: Path) -> ProbeRows:
    return make(tmp_path)


def make(folder: Path, columns: dict[str, Any] = COLUMNS, specs: dict[str, Any] = SPECS) -> ProbeRows:
    plan = FeaturePlan(features=FeaturesConfig(columns=columns), label="fare > 1", task="binary")
    return probe_rows(plan, specs, Vocabularies(folder))


def test_rows_are_the_same_each_time(made: ProbeRows, tmp_path: Path) -> None:
    assert make(tmp_path).columns == made.columns


def test_first_row_has_values_in_required_columns_only(made: ProbeRows) -> None:
    first = {name: values[0] for name, values in made.columns.items()}
    assert first.pop("count") is not None
    assert set(first.values()) == {None}
    assert None not in made.columns["count"]


def test_columns_that_requests_require_have_values(tmp_path: Path) -> None:
    plan = FeaturePlan(features=FeaturesConfig(columns=COLUMNS), label="fare > 1", task="binary")
    made = probe_rows(plan, SPECS, Vocabularies(tmp_path), required=["fare"])
    assert None not in made.columns["fare"]
    assert None in made.columns["company"]


def test_events_of_a_history_are_lists(tmp_path: Path) -> None:
    columns = {"area": "vocab", "areas": {"sequence": {"of": "area"}}, "times": "time_gaps"}
    specs = {**SPECS, "areas": SPECS["area"], "times": tf.io.FixedLenFeature([3], tf.int64)}
    made = make(tmp_path, columns, {name: specs[name] for name in columns})
    events = made.columns["areas"]
    assert {8, 32, -7} < {each for row in events if row for each in row}
    assert len({len(row) for row in events if row}) > 3
    dense = made.tensors()["areas"].numpy().tolist()
    assert dense[0] == [MISSING_INT] * len(dense[0])
    assert [[each for each in row if each != MISSING_INT] for row in dense] == [row or [] for row in events]
    parsed = tf.io.parse_example(made.examples(), made.specs)
    assert tf.RaggedTensor.from_sparse(parsed["areas"]).to_list() == [row or [] for row in events]
    assert parsed["times"].numpy().tolist() == made.columns["times"]


def test_known_and_unknown_values_of_a_vocabulary(made: ProbeRows) -> None:
    assert {"Łódź Cabs".encode(), b"Blue Line", b"unknown"} < set(made.columns["company"])
    assert {8, 32, -7, 2**40} < set(made.columns["area"])


def test_numbers_are_small_and_extreme(made: ProbeRows) -> None:
    fares = [fare for fare in made.columns["fare"] if fare is not None]
    assert all(math.isfinite(fare) for fare in fares)
    assert sum(abs(fare) < 10 for fare in fares) > 5
    assert max(fares) >= 1e6


def test_picture_can_be_decoded(tmp_path: Path) -> None:
    columns = {"scan": {"image": {"height": 4, "width": 4}}}
    pictures = make(tmp_path, columns, {"scan": tf.io.VarLenFeature(tf.string)}).columns["scan"]
    shapes = {tuple(tf.io.decode_image(each).shape) for each in pictures if each is not None}
    assert shapes == {(9, 7, 3)}


def test_lists_dates_and_columns_of_a_cross(tmp_path: Path) -> None:
    (tmp_path / "tags_split").write_bytes(b"red\ngreen\n")
    features = FeaturesConfig(
        columns={"tags": {"split": {"separator": ";"}}, "when": {"date_parts": ["hour"]}},  # type: ignore[dict-item]
        crosses={"both": {"columns": ["tags", "street"], "buckets": 9}},  # type: ignore[dict-item]
    )
    specs = {name: tf.io.VarLenFeature(tf.string) for name in features.columns_read}
    made = probe_rows(FeaturePlan(features=features, label="fare > 1", task="binary"), specs, Vocabularies(tmp_path))
    assert {b"red", b"red;green", b"unknown"} < set(made.columns["tags"])
    assert {b"2024-02-29", b"unknown"} < set(made.columns["when"])
    assert b"unknown" in made.columns["street"]


def test_column_of_numbers_that_is_always_missing(tmp_path: Path) -> None:
    specs = {"none": tf.io.VarLenFeature(tf.int64)}
    plan = FeaturePlan(features=FeaturesConfig(columns={"none": "vocab"}), label="fare > 1", task="binary")  # type: ignore[dict-item]
    vocabularies = Vocabularies(tmp_path)
    (tmp_path / "none_vocab").write_bytes(b"\x00\n")
    assert all(each is None or isinstance(each, int) for each in probe_rows(plan, specs, vocabularies).columns["none"])


def test_examples_and_tensors_hold_the_same(made: ProbeRows) -> None:
    tensors = {name: tensor.numpy().tolist() for name, tensor in made.tensors().items()}
    for at, serialized in enumerate(made.examples().numpy()):
        feature = tf.train.Example.FromString(serialized).features.feature
        for name, values in tensors.items():
            kind = feature[name].WhichOneof("kind") if name in feature else None
            held = list(getattr(feature[name], kind).value) if kind else []
            missing = values[at] in (b"", MISSING_INT) or (name == "fare" and math.isnan(values[at]))
            assert held == ([] if missing else [values[at]])


def test_description_of_a_row(made: ProbeRows) -> None:
    assert made.describe(0)[:2] == ["fare: None", "company: None"]
