"""The label of a multilabel task in the transform graph: which classes a row has, and how often each class occurs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.base.class_set import ClassSetConfig
from components.base.errors import InputError
from components.features import feature_names
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.label import LabelTensor, label
from components.features.plan import FeaturePlan
from tests.unit.components.features.test_label import BROKEN, MISSING, entries

FEATURES = FeaturesConfig.model_validate({"columns": {"x": "z_score"}})
TEXTS = [b"red|green", None, b" blue | red||", b"|", b"green|green", b"red", b"violet"]
LISTS = [[b"red", b"green"], [], [b"blue", b"red"], [], [b"green", b"green"], [b"red"], [b"violet"]]
MIXED = [[b"red|green"], [], [b"blue", b"red"], [b""], [b"green", b"green"], [b"red"], [b"violet"]]
SETS = [{b"red", b"green"}, set(), {b"blue", b"red"}, set(), {b"green"}, {b"red"}, {b"violet"}]
SIZE = 4


def compute_label(rows: list[Any], dtype: Any = tf.string, **classes: Any) -> LabelTensor:
    lists = [row if isinstance(row, list) else [] if row is None else [row] for row in rows]
    indices = [[row, place] for row, values in enumerate(lists) for place in range(len(values))]
    sparse = tf.SparseTensor(
        indices, tf.constant([value for row in lists for value in row], dtype), [len(rows), max(map(len, lists))]
    )
    config = ClassSetConfig.model_validate({"size": SIZE, **classes})
    plan = FeaturePlan(features=FEATURES, labels=(Label("y"),), task="multilabel", classes=config)
    return label(plan, {"y": column("y", sparse)})


@pytest.mark.parametrize("rows", [TEXTS, LISTS, MIXED])
def test_a_row_has_the_known_classes_of_its_text_or_list(rows: list[Any], tmp_path: Path) -> None:
    computed = compute_label(rows)
    known = [b"red", b"green", b"blue"]
    path = tmp_path / "classes"
    path.write_bytes(b"\n".join(known) + b"\n")
    received = computed.finish([tf.constant(""), tf.constant(str(path))])
    expected = [[float(name in names) for name in known] + [0.0] * (SIZE - len(known)) for names in SETS]
    assert received.dtype == tf.float32
    np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("rows", [TEXTS, LISTS])
def test_classes_and_rows_without_a_class_are_counted(rows: list[Any]) -> None:
    counts, classes = compute_label(rows, min_frequency=2).requirements
    occurrences = {b"red": 3, b"green": 3, b"blue": 1, b"violet": 1}
    assert (counts.name, entries(counts)) == (feature_names.LABEL_COUNTS, {**occurrences, MISSING: 2})
    assert (classes.name, entries(classes)) == (feature_names.LABEL_CLASSES, {b"red": 3, b"green": 3})


def test_classes_of_whole_numbers_and_other_separators() -> None:
    [counts, _] = compute_label([[7, 8], [], [7]], tf.int64).requirements
    assert entries(counts) == {b"7": 2, b"8": 1, MISSING: 1}
    [counts, _] = compute_label([b"a, b", b"b"], separator=",").requirements
    assert entries(counts) == Counter([b"a", b"b", b"b"])


def test_a_line_break_in_a_class_is_counted() -> None:
    [counts, _] = compute_label([b"a|b\nc", b"a"]).requirements
    assert entries(counts) == {b"a": 2, BROKEN: 1}


def test_floats_are_not_classes() -> None:
    with pytest.raises(InputError, match=r"multilabel expected texts or whole numbers, received floats in 'y'"):
        compute_label([[0.5]], tf.float32)
