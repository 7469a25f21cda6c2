"""Tests of probe rows: they are deterministic and contain every kind of value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.expression import Label
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
    """A transform graph that only has vocabulary files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "company_vocab").write_bytes("Łódź Cabs\nBlue Line\n".encode())
        (folder / "area_vocab").write_bytes(b"8\n32\n-7\n")

    def vocabulary_file_by_name(self, name: str) -> str:
        return str(self._folder / name)


@pytest.fixture
def probes(tmp_path: Path) -> ProbeRows:
    return make(tmp_path)


def make(folder: Path, columns: dict[str, Any] = COLUMNS, specs: dict[str, Any] = SPECS) -> ProbeRows:
    plan = FeaturePlan(features=FeaturesConfig(columns=columns), labels=(Label("fare > 1"),), task="binary")
    return probe_rows(plan, specs, Vocabularies(folder))


def test_rows_are_deterministic(probes: ProbeRows, tmp_path: Path) -> None:
    assert make(tmp_path).columns == probes.columns


def test_first_row_only_has_values_in_required_columns(probes: ProbeRows) -> None:
    first = {name: values[0] for name, values in probes.columns.items()}
    assert first.pop("count") is not None
    assert set(first.values()) == {None}
    assert None not in probes.columns["count"]


def test_columns_that_requests_require_always_have_values(tmp_path: Path) -> None:
    plan = FeaturePlan(features=FeaturesConfig(columns=COLUMNS), labels=(Label("fare > 1"),), task="binary")
    probes = probe_rows(plan, SPECS, Vocabularies(tmp_path), required=["fare"])
    assert None not in probes.columns["fare"]
    assert None in probes.columns["company"]


def test_history_columns_hold_lists_of_events(tmp_path: Path) -> None:
    columns = {"area": "vocab", "areas": {"sequence": {"of": "area"}}, "times": "time_gaps"}
    specs = {**SPECS, "areas": SPECS["area"], "times": tf.io.FixedLenFeature([3], tf.int64)}
    probes = make(tmp_path, columns, {name: specs[name] for name in columns})
    events = probes.columns["areas"]
    assert {8, 32, -7} < {event for row in events if row for event in row}
    assert len({len(row) for row in events if row}) > 3
    dense = probes.tensors()["areas"].numpy().tolist()
    assert dense[0] == [MISSING_INT] * len(dense[0])
    assert [[event for event in row if event != MISSING_INT] for row in dense] == [row or [] for row in events]
    parsed = tf.io.parse_example(probes.examples(), probes.specs)
    assert tf.RaggedTensor.from_sparse(parsed["areas"]).to_list() == [row or [] for row in events]
    assert parsed["times"].numpy().tolist() == probes.columns["times"]


def test_vocabulary_columns_hold_known_and_unknown_values(probes: ProbeRows) -> None:
    assert {"Łódź Cabs".encode(), b"Blue Line", b"unknown"} < set(probes.columns["company"])
    assert {8, 32, -7, 2**40} < set(probes.columns["area"])


def test_numeric_columns_hold_small_and_extreme_numbers(probes: ProbeRows) -> None:
    fares = [fare for fare in probes.columns["fare"] if fare is not None]
    assert all(math.isfinite(fare) for fare in fares)
    assert sum(abs(fare) < 10 for fare in fares) > 5
    assert max(fares) >= 1e6


def test_images_can_be_decoded(tmp_path: Path) -> None:
    columns = {"scan": {"image": {"height": 4, "width": 4}}}
    images = make(tmp_path, columns, {"scan": tf.io.VarLenFeature(tf.string)}).columns["scan"]
    shapes = {tuple(tf.io.decode_image(image).shape) for image in images if image is not None}
    assert shapes == {(9, 7, 3)}


def test_split_texts_dates_and_crossed_columns_get_values(tmp_path: Path) -> None:
    (tmp_path / "tags_split").write_bytes(b"red\ngreen\n")
    features = FeaturesConfig(
        columns={"tags": {"split": {"separator": ";"}}, "when": {"date_parts": ["hour"]}},  # type: ignore[dict-item]
        crosses={"both": {"columns": ["tags", "street"], "buckets": 9}},  # type: ignore[dict-item]
    )
    specs = {name: tf.io.VarLenFeature(tf.string) for name in features.columns_read}
    probes = probe_rows(
        FeaturePlan(features=features, labels=(Label("fare > 1"),), task="binary"), specs, Vocabularies(tmp_path)
    )
    assert {b"red", b"red;green", b"unknown"} < set(probes.columns["tags"])
    assert {b"2024-02-29", b"unknown"} < set(probes.columns["when"])
    assert b"unknown" in probes.columns["street"]


def test_column_of_numbers_may_always_be_missing(tmp_path: Path) -> None:
    specs = {"none": tf.io.VarLenFeature(tf.int64)}
    plan = FeaturePlan(features=FeaturesConfig(columns={"none": "vocab"}), labels=(Label("fare > 1"),), task="binary")  # type: ignore[dict-item]
    vocabularies = Vocabularies(tmp_path)
    (tmp_path / "none_vocab").write_bytes(b"\x00\n")
    assert all(
        value is None or isinstance(value, int) for value in probe_rows(plan, specs, vocabularies).columns["none"]
    )


def test_examples_and_tensors_hold_the_same_values(probes: ProbeRows) -> None:
    tensors = {name: tensor.numpy().tolist() for name, tensor in probes.tensors().items()}
    for index, serialized in enumerate(probes.examples().numpy()):
        feature = tf.train.Example.FromString(serialized).features.feature
        for name, values in tensors.items():
            kind = feature[name].WhichOneof("kind") if name in feature else None
            actual = list(getattr(feature[name], kind).value) if kind else []
            missing = values[index] in (b"", MISSING_INT) or (name == "fare" and math.isnan(values[index]))
            assert actual == ([] if missing else [values[index]])


def test_describe_lists_the_values_of_a_row(probes: ProbeRows) -> None:
    assert probes.describe(0)[:2] == ["fare: None", "company: None"]
