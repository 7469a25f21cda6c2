"""The label in the transform graph: labelled rows, their classes, and the item counts of a retrieval."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from components.features import expression, feature_names, label_values
from components.features.analysis import Vocabulary
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.label import LabelTensor, label
from components.features.plan import FeaturePlan

FEATURES = FeaturesConfig.model_validate({"columns": {"item": "vocab", "user": "vocab"}})


@pytest.mark.parametrize("expression", ["clicked", "clicked > 0.5"])
def test_rows_and_interactions_of_every_item_are_counted(expression: str) -> None:
    plan = FeaturePlan(features=FEATURES, labels=(Label(expression),), task="retrieval", item="item")
    items = tf.sparse.from_dense(tf.constant([[7], [7], [9], [0], [9], [7]], tf.int64))
    columns = {
        "item": column("item", items),
        "clicked": column("clicked", tf.constant([[1], [0], [1], [1], [1], [1]], tf.int64)),
    }
    computed_label = label(plan, columns)
    counts_by_name = {}
    for requirement in computed_label.requirements:
        assert isinstance(requirement, Vocabulary)
        assert requirement.counts
        texts, counts = requirement.tensors
        counts_by_name[requirement.name] = dict(zip(texts.numpy().tolist(), counts.numpy().tolist(), strict=True))
    assert counts_by_name == {
        feature_names.LABEL_COUNTS: {b"1": 5, b"0": 1},
        feature_names.ITEM_ROWS: {b"7": 3, b"9": 2},
        feature_names.ITEM_INTERACTIONS: {b"7": 2, b"9": 2},
    }, "the fourth row has no item"
    assert computed_label.finish(()).numpy().tolist() == [1, 0, 1, 1, 1, 1]


MISSING, BROKEN = b"\0missing", b"\0line break"
CLASSES: dict[str, tuple[Any, Any, list[Any], list[bytes]]] = {
    "texts": (
        tf.string,
        pa.binary(),
        [b"b", None, b"a", b"", b"b", b"a\nb", b"nan", b"c\r", b"\xff"],
        [b"b", MISSING, b"a", MISSING, b"b", BROKEN, b"nan", BROKEN, b"\xff"],
    ),
    "integers": (
        tf.int64,
        pa.int64(),
        [3, None, 0, 3, 2**53 + 1, 0, 2**53],
        [b"3", MISSING, b"0", b"3", b"9007199254740993", b"0", b"9007199254740992"],
    ),
    "floats": (
        tf.float32,
        pa.float32(),
        [1.0, None, 2.5, float("nan"), 1e-7, 1.0, 16_777_216.0, 3e-7, 0.1],
        [b"1", MISSING, b"2.5", MISSING, b"1e-07", b"1", b"16777216", b"3e-07", b"0.1"],
    ),
}


def compute_label(values: list[Any], dtype: Any, task: Any) -> LabelTensor:
    rows = [[row, 0] for row, value in enumerate(values) if value is not None]
    present_values = tf.constant([value for value in values if value is not None], dtype)
    plan = FeaturePlan(features=FEATURES, labels=(Label("y"),), task=task)
    return label(plan, {"y": column("y", tf.SparseTensor(rows, present_values, [len(values), 1]))})


def entries(vocabulary: Any) -> dict[bytes, int]:
    accumulator = vocabulary.accumulator()
    state = accumulator.add(accumulator.empty(), *(tensor.numpy() for tensor in vocabulary.tensors))
    [batch] = accumulator.prune(state)
    return dict(zip(*(values.to_pylist() for values in batch.columns), strict=True))


@pytest.mark.parametrize("kind", CLASSES)
def test_rows_without_a_class_are_counted_but_do_not_add_a_class(kind: str) -> None:
    dtype, arrow, values, names = CLASSES[kind]
    counts, classes = compute_label(values, dtype, "multiclass").requirements
    assert entries(counts) == Counter(names)
    assert entries(classes) == Counter(name for name in names if name not in (MISSING, BROKEN))
    labels = label_values.labels(expression.parse("y"), "multiclass", {"y": pa.array(values, arrow)})
    np.testing.assert_array_equal(np.isnan(labels), [name == MISSING for name in names])


def test_binary_label_of_texts() -> None:
    values = [b"1", b"0", b"1", b"0", b"0"]
    computed_label = compute_label(values, tf.string, "binary")
    [counts] = computed_label.requirements
    assert entries(counts) == {b"1": 2, b"0": 3}
    assert computed_label.finish(()).numpy().tolist() == [1, 0, 1, 0, 0]
    columns = {"y": pa.array(values, pa.large_binary())}
    assert label_values.labels(expression.parse("y"), "binary", columns).tolist() == [1, 0, 1, 0, 0]


def test_texts_other_than_0_and_1_are_counted_for_a_binary_label() -> None:
    [counts] = compute_label([b"1", b"", None, b"0\n", b"no"], tf.string, "binary").requirements
    assert entries(counts) == {b"1": 1, MISSING: 2, BROKEN: 1, b"no": 1}
