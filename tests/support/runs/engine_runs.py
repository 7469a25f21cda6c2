"""Runs of one small pipeline on different engines, and a comparison of their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.data.example_encoder import encode
from components.data.examples import Examples
from tests.support.data import people
from tests.support.runs.command import Ended, command

SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Ran:
    """A run up to Transform."""

    ended: Ended
    artifacts: Path

    def examples(self, node: str, output: str, split: str) -> list[tf.train.Example]:
        """Return the Examples of a split, in an order that does not depend on the last digits of a float."""
        (folder,) = (self.artifacts / node / output).iterdir()
        files = tuple(sorted(map(str, (folder / f"Split-{split}").iterdir())))
        records = (record for batch in Examples(files, "parquet").batches() for record in encode(batch).to_pylist())
        return sorted(map(tf.train.Example.FromString, records), key=_order)

    def statistics(self, split: str) -> dict[str, Any]:
        """Return the statistics of each column by its name."""
        (folder,) = (self.artifacts / "StatisticsGen" / "statistics").iterdir()
        serialized = (folder / f"Split-{split}" / "FeatureStats.pb").read_bytes()
        (data,) = statistics_pb2.DatasetFeatureStatisticsList.FromString(serialized).datasets
        return {feature.path.step[0]: feature for feature in data.features}


def ran(folder: Path, engine: str, name: str, runtime: dict[str, Any]) -> Ran:
    """Run the pipeline up to Transform, into a new folder."""
    data = people.write(folder / name / "people.csv", people.rows())
    config = people.write_config(folder / name / "people.yaml", data, runtime=runtime)
    ended = command(
        *("--local", "--json", "--config", str(config), "--output", str(folder / name), "--to", "Transform"),
        *("--engine", engine),
    )
    assert ended.exit_code == 0, ended.out + ended.err
    return Ran(ended, Path(runtime.get("artifacts", folder / name / "people" / "artifacts")))


def assert_equal(run_result: Ran, expected: Ran) -> None:
    """Compare Examples and statistics; floats of Examples within 1e-6, other values exactly."""
    for node, output in (("ExampleGen", "examples"), ("Transform", "transformed_examples")):
        for split in SPLITS:
            ours, theirs = (run.examples(node, output, split) for run in (run_result, expected))
            assert len(ours) == len(theirs) > 100
            for example, expected_example in zip(ours, theirs, strict=True):
                assert_same_example(example, expected_example)
    for split in SPLITS:
        ours, theirs = run_result.statistics(split), expected.statistics(split)
        assert set(ours) == set(theirs) == set(people.COLUMNS)
        for column, expected_column in theirs.items():
            kind = expected_column.WhichOneof("stats")
            assert ours[column].WhichOneof("stats") == kind
            assert ours[column].string_stats.unique == expected_column.string_stats.unique
            largest = max(abs(expected_column.num_stats.min), abs(expected_column.num_stats.max))
            for number in ("mean", "std_dev", "min", "median", "max"):
                expected_number = getattr(expected_column.num_stats, number)
                assert getattr(ours[column].num_stats, number) == pytest.approx(
                    expected_number, rel=1e-9, abs=1e-9 * largest
                )
            common = [
                getattr(column_statistics, str(kind)).common_stats
                for column_statistics in (ours[column], expected_column)
            ]
            assert len({(statistics.num_non_missing, statistics.num_missing) for statistics in common}) == 1


def assert_same_example(example: tf.train.Example, expected: tf.train.Example) -> None:
    ours, theirs = example.features.feature, expected.features.feature
    assert set(ours) == set(theirs)
    for name, feature in theirs.items():
        kind = feature.WhichOneof("kind")
        assert ours[name].WhichOneof("kind") == kind
        values = [list(getattr(side, kind).value) if kind else [] for side in (ours[name], feature)]
        assert values[0] == (pytest.approx(values[1], rel=1e-6, abs=1e-6) if kind == "float_list" else values[1]), name


def _order(example: tf.train.Example) -> tuple[str, str]:
    exact, rounded = [], []
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if kind == "float_list":
            rounded.append([round(value, 3) for value in values])
        else:
            exact.append((name, values))
    return repr(exact), repr(rounded)
