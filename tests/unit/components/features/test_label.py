"""The label in the transform graph: what a retrieval counts of its items."""

from __future__ import annotations

import pytest
import tensorflow as tf

from components.features import feature_names
from components.features.analysis import Vocabulary
from components.features.column import column
from components.features.config import FeaturesConfig
from components.features.label import label
from components.features.plan import FeaturePlan

FEATURES = FeaturesConfig.model_validate({"columns": {"item": "vocab", "user": "vocab"}})


@pytest.mark.parametrize("expression", ["clicked", "clicked > 0.5"])
def test_rows_and_interactions_of_each_item_are_counted(expression: str) -> None:
    plan = FeaturePlan(features=FEATURES, label=expression, task="retrieval", item="item")
    items = tf.sparse.from_dense(tf.constant([[7], [7], [9], [0], [9], [7]], tf.int64))
    columns = {
        "item": column("item", items),
        "clicked": column("clicked", tf.constant([[1], [0], [1], [1], [1], [1]], tf.int64)),
    }
    made = label(plan, columns)
    found = {}
    for each in made.requirements:
        assert isinstance(each, Vocabulary)
        assert each.counts
        texts, counts = each.tensors
        found[each.name] = dict(zip(texts.numpy().tolist(), counts.numpy().tolist(), strict=True))
    assert found == {
        feature_names.LABEL_COUNTS: {b"1": 5, b"0": 1},
        feature_names.ITEM_ROWS: {b"7": 3, b"9": 2},
        feature_names.ITEM_INTERACTIONS: {b"7": 2, b"9": 2},
    }, "the fourth row has no item"
    assert made.finish(()).numpy().tolist() == [1, 0, 1, 1, 1, 1]
