"""Findings of the data gate state split, feature, values and remedy."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from components.base.limits import MOST_CLASSES
from components.data.near_duplicates import NearDuplicates, Pair
from components.data_gate import findings

SCHEMA = text_format.Parse(
    """
    feature { name: "fare" type: FLOAT value_count { max: 1 } presence { min_fraction: 1.0 min_count: 1 } }
    feature { name: "hour" type: INT value_count { max: 1 } int_domain { min: 0 max: 23 } }
    feature { name: "pay" type: BYTES value_count { max: 1 } domain: "pay" }
    string_domain { name: "pay" value: "cash" value: "card" }
    """,
    schema_pb2.Schema(),
)


def statistics(**columns: list[object]) -> statistics_pb2.DatasetFeatureStatisticsList:
    return tfdv.generate_statistics_from_dataframe(pd.DataFrame(columns), n_jobs=1)


def find_anomalies(**columns: list[object]) -> dict[str, findings.Finding]:
    anomalies = tfdv.validate_statistics(statistics(**columns), SCHEMA)
    return {finding.feature: finding for finding in findings.anomalies("train", anomalies, "schema/mine.pbtxt")}


GOOD: dict[str, list[object]] = {"fare": [1.5, 2.5], "hour": [1, 23], "pay": ["cash", "card"]}


def test_good_data_has_no_findings() -> None:
    assert find_anomalies(**GOOD) == {}


@pytest.mark.parametrize(
    ("column", "values", "description", "remedy"),
    [
        ("fare", [1.5, None], "0.5", "lower the presence in schema/mine.pbtxt"),
        ("hour", [1, 24], "24; expected at least 0 and at most 23", "widen the column's range in schema/mine.pbtxt"),
        (
            "pay",
            ["cash", "bitcoin"],
            "bitcoin (~50%); the threshold is 0%",
            "add the values to the column's domain in schema/mine.pbtxt",
        ),
        ("fare", ["a", "b"], "got STRING", "fix the column's values, or change its type in schema/mine.pbtxt"),
    ],
)
def test_anomaly_names_value_and_remedy(column: str, values: list[object], description: str, remedy: str) -> None:
    finding = find_anomalies(**{**GOOD, column: values})[column]
    assert description in finding.description
    assert remedy in finding.remedy
    assert finding.line.startswith(f"train: {column}: ")


def test_new_column_and_lost_column_are_found() -> None:
    lost_and_new = find_anomalies(fare=[1.5], hour=[1], pay=["cash"], extra=[1])
    assert "add the column to schema/mine.pbtxt" in lost_and_new["extra"].remedy
    assert "restore the column" in find_anomalies(hour=[1], pay=["cash"])["fare"].remedy


def test_too_few_rows_are_found() -> None:
    (dataset,) = statistics(**GOOD).datasets
    assert list(findings.rows("eval", dataset, 2)) == []
    (finding,) = findings.rows("eval", dataset, 3)
    assert finding.line.startswith("eval: expected at least 3 rows, received 2")


@pytest.mark.parametrize(
    ("values", "description"),
    [
        ([1, 1], "the label is constant: '1' in all 2 rows"),
        (["yes", "yes"], "the label is constant: 'yes' in all 2 rows"),
        ([1.0, None], "the label is missing in 1 of 2 rows"),
        (["a", "b", "", None, ""], "the label is missing in 3 of 5 rows"),
    ],
)
def test_label_that_cannot_be_learned_is_found(values: list[object], description: str) -> None:
    (dataset,) = statistics(label=values).datasets
    first = next(findings.label("train", dataset, "label", classes=True))
    assert description in first.description


def test_label_that_is_nan_counts_as_missing() -> None:
    values = pa.array([[1.0], [2.0], [float("nan")], None], pa.large_list(pa.float32()))
    batch = pa.RecordBatch.from_arrays([values], ["label"])
    (dataset,) = stats_impl.generate_statistics_in_memory(batch).datasets
    (finding,) = findings.label("train", dataset, "label", classes=True)
    assert "the label is missing in 2 of 4 rows" in finding.description


def test_label_with_too_many_classes_is_found() -> None:
    def find_label_problems(classes: int) -> list[findings.Finding]:
        (dataset,) = statistics(label=[f"v{number}" for number in range(classes)]).datasets
        return list(findings.label("train", dataset, "label", classes=True))

    assert find_label_problems(MOST_CLASSES) == []
    (finding,) = find_label_problems(MOST_CLASSES + 1)
    assert finding.description == "the label has 10,001 different texts; expected at most 10,000 classes"


def test_absent_label_is_found_but_a_good_label_is_not() -> None:
    (dataset,) = statistics(label=[0, 1]).datasets
    assert list(findings.label("train", dataset, "label", classes=True)) == []
    (finding,) = findings.label("train", dataset, "other", classes=True)
    assert "missing in 2 of 2 rows" in finding.description


def test_near_duplicates_are_found_only_above_the_bound() -> None:
    pairs = (Pair(0.99, "b.jpg", "a.jpg"),)
    near_duplicates = [NearDuplicates("image", "eval", 200, 3, pairs), NearDuplicates("image", "test", 0, 0)]
    assert list(findings.near_duplicates(near_duplicates, None)) == []
    assert list(findings.near_duplicates(near_duplicates, 0.015)) == []
    (finding,) = findings.near_duplicates(near_duplicates, 0.014)
    assert finding.line == (
        "eval: image: expected at most 1.4% of the images to look like one of train, received 1.5%: 3 of 200, such as "
        "b.jpg and a.jpg [remove them, split by a column that keeps copies together, or raise "
        "validation.near_duplicates]"
    )
