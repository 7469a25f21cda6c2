"""Tests that the description of request columns agrees with the schema and with statistics computed by pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from components.data.examples import to_lists
from components.results.request_schema import FILE, Column, RequestSchema
from components.statistics.combine import StatisticsFn
from components.trainer import request_columns

pytestmark = pytest.mark.both_lines

SPECS = {
    "fare": tf.io.VarLenFeature(tf.float32),
    "hour": tf.io.VarLenFeature(tf.int64),
    "payment": tf.io.VarLenFeature(tf.string),
    "area": tf.io.VarLenFeature(tf.int64),
    "miles": tf.io.VarLenFeature(tf.float32),
    "past": tf.io.VarLenFeature(tf.int64),
    "pair": tf.io.FixedLenFeature([2], tf.int64),
    "new": tf.io.VarLenFeature(tf.float32),
}
CURATED = """
feature { name: "fare" type: FLOAT presence { min_fraction: 1 } }
feature { name: "hour" type: INT presence { min_fraction: 1 } int_domain { min: -5 max: 99 } }
feature { name: "payment" type: BYTES presence { min_fraction: 1 } domain: "payment" }
feature { name: "area" type: INT }
feature { name: "miles" type: FLOAT presence { min_fraction: 1 } }
feature { name: "past" type: INT }
feature { name: "pair" type: INT presence { min_fraction: 1 } shape { dim { size: 2 } } }
feature { name: "tips" type: FLOAT }
feature { name: "new" type: FLOAT value_count { max: 3 } float_domain { min: 0 } }
string_domain { name: "payment" value: "Cash" value: "Card" }
"""


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(3)

    def frame(rows: int) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "fare": random.normal(10, 5, rows).astype(np.float32),
                "hour": random.integers(0, 24, rows),
                "payment": random.choice(["Cash", "Card"], rows),
                "area": pd.array(random.integers(1, 78, rows), "Int64"),
                "miles": random.random(rows).astype(np.float32),
                "past": [[*range(number % 4)] for number in range(rows)],
                "pair": [[3, number] for number in range(rows)],
                "tips": random.random(rows).astype(np.float32),
            }
        )

    frames = {"train": frame(300), "eval": frame(100)}
    frames["train"].loc[::3, "area"] = pd.NA
    # This column is missing in a row that passed the data gate, so requests may lack it as well.
    frames["eval"].loc[7, "miles"] = None
    frames["eval"]["unheard_of"] = 1
    return frames


@pytest.fixture(scope="module")
def files(frames: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    combine = StatisticsFn(tfdv.StatsOptions().to_json())
    combine.setup()
    result = {}
    for split, frame in frames.items():
        batch = to_lists(pa.RecordBatch.from_pandas(frame, preserve_index=False))
        statistics = combine.extract_output(combine.add_input(combine.create_accumulator(), batch))
        path = tmp_path_factory.mktemp(split) / "FeatureStats.pb"
        path.write_bytes(statistics.SerializeToString())
        result[split] = str(path)
    return result


def describe(files: dict[str, str], schema: str = CURATED) -> RequestSchema:
    statistics = request_columns.read_statistics(files)
    parsed = text_format.Parse(schema, schema_pb2.Schema())
    return request_columns.describe_requests(parsed, statistics, SPECS, {"past"})


def test_columns_are_described_by_the_schema_and_the_data(
    files: dict[str, str], frames: dict[str, pd.DataFrame]
) -> None:
    train, described = frames["train"], describe(files)
    bounds = {name: (float(train[name].min()), float(train[name].max())) for name in ("fare", "hour", "area", "miles")}
    described_bounds = {name: (described.columns[name].least, described.columns[name].greatest) for name in bounds}
    assert described_bounds == bounds
    columns = described.columns
    missing = {name for name in SPECS if name in train and train[name].isna().any()}
    always = {name for name, column in columns.items() if column.always_present}
    assert (train["past"].map(len) == 0).any(), "these rows have no value either"
    assert always == {"fare", "hour", "payment", "miles", "pair"} - missing
    assert {name for name, column in columns.items() if column.required} == {"fare", "hour", "payment", "pair"}
    assert {name: column.most_values for name, column in columns.items()} == {
        **dict.fromkeys(SPECS, 1), "past": None, "pair": 2, "new": 3,
    }  # fmt: skip
    assert {name: column.domain for name, column in columns.items() if column.domain} == {"payment": ("Cash", "Card")}
    assert described.other_columns == ("tips", "unheard_of")


def test_bounds_come_from_the_schema_if_there_are_no_statistics() -> None:
    columns = describe({}).columns
    assert (columns["hour"].least, columns["hour"].greatest) == (-5, 99)
    assert (columns["new"].least, columns["new"].greatest) == (0, None)
    assert columns["fare"].required
    assert columns["fare"].most_values is None


def test_only_dense_columns_are_required_without_a_schema(files: dict[str, str]) -> None:
    assert {name for name, column in describe(files, "").columns.items() if column.required} == {"pair"}


def test_written_description_can_be_read_back(tmp_path: Path) -> None:
    schema = RequestSchema(
        columns={"a": Column(dtype="string", domain=("Łódź", '"')), "b": Column(dtype="int64", least=-(2.0**63))}
    )
    request_columns.write(schema, str(tmp_path))
    content: Any = (tmp_path / FILE).read_bytes()
    assert RequestSchema.model_validate_json(content) == schema
