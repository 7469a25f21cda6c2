"""Matrix operations compute the features of many columns: they equal NumPy's reference and need few graph nodes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.features import ops
from components.features.analysis import constant
from components.features.column import column
from components.features.column_group import Columns
from components.features.compact import CompactFeatures
from components.features.config import FeaturesConfig
from components.features.host import EXPORTED_OPS
from components.features.host.preprocessing import Preprocessing
from components.features.operation import find_operation
from components.features.plan import FeaturePlan
from components.features.preprocessing import DeclaredOperations
from tests.support.data.all_operations import OPTIONS
from tests.support.data.graph_nodes import count_nodes
from tests.support.data.tolerances import rounding

pytestmark = pytest.mark.both_lines
RANDOM = np.random.default_rng(0)
ROWS = 200
LARGE = 2**40
VALUES: dict[str, list[list[Any]]] = {
    "int": [[int(value) for value in RANDOM.integers(-9, 9 + scale, ROWS)] for scale in (0, 100, LARGE)],
    "float": [[float(value) for value in RANDOM.normal(0, scale, ROWS).astype(np.float32)] for scale in (1, 100, 1e30)],
    "bytes": [[b"%d" % value for value in RANDOM.integers(0, count, ROWS)] for count in (2, 9, 99)],
}
SPECIAL: dict[str, list[Any]] = {
    "int": [0, -1, LARGE, -LARGE],
    "float": [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e-40, 3e38],
    "bytes": [b"", b"\xff", "é".encode()],
}
TYPES = {"int": tf.int64, "float": tf.float32, "bytes": tf.string}


def lists(dtype: str) -> dict[str, list[list[Any]]]:
    """Return the values of every row by column. About 10 % are missing; the last two columns hold lists and nothing."""
    columns = {}
    for number, values in enumerate(VALUES[dtype]):
        rows = [[] if RANDOM.random() < 0.1 else [value] for value in values]
        columns[f"x{number}"] = [*rows, *([value] for value in SPECIAL[dtype])]
    count = len(columns["x0"])
    columns["several"] = [[VALUES[dtype][1][row % ROWS]] * (row % 4) + [SPECIAL[dtype][0]] for row in range(count)]
    columns["never"] = [[] for _ in range(count)]
    return columns


def sparse(rows: list[list[Any]], dtype: str) -> tf.SparseTensor:
    indices = [(row, at) for row, values in enumerate(rows) for at in range(len(values))]
    values = [value for row in rows for value in row]
    shape = [len(rows), max(map(len, rows), default=0)]
    return tf.SparseTensor(np.array(indices, np.int64).reshape(-1, 2), tf.constant(values, TYPES[dtype]), shape)


def compute(config: FeaturesConfig, inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the features by name as the network reads them, and the analysis results by feature, from two batches."""
    features, numbers = {}, {}
    for group in ops.group(config.declared, Columns(inputs)):
        result, requirement = None, group.requirement
        if requirement is not None:
            accumulator, (values,) = requirement.accumulator(), (tensor.numpy() for tensor in requirement.tensors)
            states = [accumulator.add(accumulator.empty(), values[half::2]) for half in (0, 1)]
            result = accumulator.result(accumulator.merge(*states))
            numbers |= {feature.name: result[:, at] for at, feature in enumerate(group.features)}
        features |= ops.apply(group, None if result is None else tf.constant(result))
    expanded = CompactFeatures.find(config).expand(features)
    return {name: values.numpy() for name, values in expanded.items()}, numbers


GROUPED = [
    (op, dtype)
    for op, kind in FeaturesConfig.model_validate(
        {"columns": {name: {name: OPTIONS[name]} for name in OPTIONS}}
    ).columns.items()
    for dtype in sorted(kind[0].takes)
    if op in EXPORTED_OPS and find_operation(kind[0]).is_elementwise(kind[0])
]


@pytest.mark.parametrize("form", ["sparse", "vector", "matrix"])
@pytest.mark.parametrize(("op", "dtype"), GROUPED)
def test_group_equals_numpy(op: str, dtype: str, form: str) -> None:
    columns = lists(dtype)
    if form != "sparse":
        columns = {name: [(values or [SPECIAL[dtype][0]])[:1] for values in rows] for name, rows in columns.items()}
    inputs: dict[str, Any] = {name: sparse(rows, dtype) for name, rows in columns.items()}
    if form != "sparse":
        dense = {name: tf.sparse.to_dense(values) for name, values in inputs.items()}
        inputs = {name: tensor[:, 0] if form == "vector" else tf.tile(tensor, [1, 2]) for name, tensor in dense.items()}
    config = FeaturesConfig.model_validate({"columns": {name: {op: OPTIONS[op]} for name in columns}})
    received, numbers = compute(config, inputs)
    feature_descriptions = [
        {"name": feature.name, "op": op, "columns": feature.columns, "options": feature.op.model_dump()}
        | ({"analysis": numbers[feature.name]} if feature.name in numbers else {})
        for feature in config.declared
    ]
    reference = Preprocessing({"inputs": dict.fromkeys(columns, dtype), "features": feature_descriptions})
    expected = reference({name: [values[0] if values else None for values in rows] for name, rows in columns.items()})
    for name, values in expected.items():
        assert received[name].dtype == values.dtype, name
        if values.dtype == np.int64:
            assert received[name].tolist() == values.tolist(), name
        else:
            # NumPy and TensorFlow round logarithms, sines and cosines differently.
            rounding(8, largest=float(np.abs(values).max(initial=1))).assert_close(received[name], values, name)


def test_date_parts_of_a_group_equal_pythons() -> None:
    first = datetime(1900, 1, 1, tzinfo=timezone.utc)
    dates = [
        [first + timedelta(seconds=int(seconds)) for seconds in RANDOM.integers(0, 6 * 10**9, 50)] for _ in range(3)
    ]
    parts = {"year": 0, "month": 1, "day": 2, "hour": 3, "minute": 4}
    for dtype in ("int", "bytes"):
        inputs = {
            f"x{number}": sparse(
                [[int(day.timestamp())] if dtype == "int" else [day.isoformat().encode()] for day in column] + [[]],
                dtype,
            )
            for number, column in enumerate(dates)
        }
        columns = Columns(inputs)
        for part, at in parts.items():
            config = FeaturesConfig.model_validate(
                {"columns": {name: {"date_part": {"part": part}} for name in inputs}}
            )
            [group] = ops.group(config.declared, columns)
            moments = tf.constant([[0.0] * 3, [1.0] * 3, [0.0] * 3, [0.0] * 3], tf.float64)
            received = ops.apply(group, moments if part == "year" else None)
            for number, days in enumerate(dates):
                expected = [day.timetuple()[at] + (part in ("hour", "minute")) for day in days]
                assert received[f"x{number}_{part}"].numpy().tolist() == [*expected, 0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_group_contains_the_values_of_its_columns(dtype: str, rows: int) -> None:
    columns = {name: values[-rows:] if rows else [] for name, values in lists(dtype).items()}
    # Empty columns come first, last and next to each other.
    order = ["never", "x0", "never", "never", "several", "x2", "x1", "never"]
    inputs = {f"{number}": sparse(columns[name], dtype) for number, name in enumerate(order)}
    group = Columns(inputs).group(list(inputs))
    assert group.values.shape == group.present.shape == (rows, len(order))
    for number, (name, parsed) in enumerate(inputs.items()):
        single = column(name, parsed)
        np.testing.assert_array_equal(group.values[:, number], single.values)
        np.testing.assert_array_equal(group.present[:, number], single.present)
        if dtype == "float":
            np.testing.assert_array_equal(np.signbit(group.values[:, number]), np.signbit(single.values))


def count_graph_nodes(columns: int, *, is_analysis: bool) -> int:
    """Count the nodes of a graph with inlined functions and four operations per column."""
    operations = ["z_score", "missing", "min_max", {"bucketize": {"buckets": 5}}]
    names = [f"x{number}" for number in range(columns)]
    plan = FeaturePlan.model_validate(
        {"features": {"columns": dict.fromkeys(names, operations)}, "labels": [{"text": "y"}], "task": "regression"}
    )
    widths = {"z_score": 4, "min_max": 4, "bucketize": 4}

    def function(inputs: dict[str, Any]) -> Any:
        declared = DeclaredOperations(plan, Columns(inputs))
        if is_analysis:
            return [requirement.tensors for requirement in declared.requirements.values()]
        results = {f"x0_{op}": constant(np.ones((width, columns))) for op, width in widths.items()}
        return declared.outputs(results | {"label/0": constant("")})

    specs = {name: tf.SparseTensorSpec([None, None], tf.float32) for name in (*names, "y")}
    return count_nodes(tf.function(function, [specs], autograph=False).get_concrete_function())


@pytest.mark.parametrize(("is_analysis", "most"), [(False, 3 + 4), (True, 3)])
def test_graph_has_few_nodes_per_column(is_analysis: bool, most: int) -> None:
    few, many = count_graph_nodes(10, is_analysis=is_analysis), count_graph_nodes(60, is_analysis=is_analysis)
    # A column adds the three components of its SparseTensor and, unless it is only analyzed, four outputs.
    assert (many - few) / 50 <= most
    assert few < 400
