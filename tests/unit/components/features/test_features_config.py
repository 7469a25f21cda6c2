"""Histories and texts in the `features` section, and the columns and options that they refer to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from components.features.config import FeaturesConfig
from components.features.feature_spec import Ids
from components.features.ops import output_spec

COLUMNS: dict[str, Any] = {
    "item": ["missing", {"vocab": {"size": 50, "oov_buckets": 3, "embedding": 8}}],
    "maker": {"hash": {"buckets": 9}},
    "items": {"sequence": {"of": "item", "max_values": 5}},
    "makers": {"sequence": {"of": "maker", "max_values": 5, "along": "items"}},
    "times": {"time_gaps": {"until": "now", "max_values": 5, "along": "items"}},
}


def test_history_shares_the_ids_of_its_column() -> None:
    config = FeaturesConfig.model_validate({"columns": COLUMNS})
    features = {feature.name: feature for feature in config.declared}
    items, makers, times = (features[name] for name in ("items_sequence", "makers_sequence", "times_time_gaps"))
    assert (items.shares, items.along, items.vocabulary) == ("item_vocab", None, "item_vocab")
    op: Any = items.op
    assert (op.size, op.oov_buckets, op.embedding, op.buckets) == (50, 3, 8, None)
    assert (makers.shares, makers.along, makers.op.model_dump()["buckets"]) == ("maker_hash", "items_sequence", 9)
    assert (times.columns, times.along, times.shares) == (("times", "now"), "items_sequence", None)
    assert config.columns_read == ("item", "maker", "items", "makers", "times", "now")
    assert config.histories == {"items", "makers", "times"}
    assert FeaturesConfig.model_validate_json(config.model_dump_json()).declared == config.declared


def test_weights_of_words_need_a_vocabulary() -> None:
    message = "expected vocabulary with weighting: tf_idf, received none; set vocabulary"
    for options in ({}, {"buckets": 500}):
        with pytest.raises(ValidationError, match=message):
            FeaturesConfig.model_validate({"columns": {"note": {"text": {"weighting": "tf_idf", **options}}}})
    weighted = {"text": {"weighting": "tf_idf", "vocabulary": 7, "max_values": 5}}
    (feature,) = FeaturesConfig.model_validate({"columns": {"note": weighted}}).declared
    # The words of the vocabulary, and padding; unknown words do not have an ID.
    assert output_spec(feature, lambda name: 6) == Ids(7, values=5, is_weighted=True)


@pytest.mark.parametrize(
    ("column", "op", "message"),
    [
        ("items", {"sequence": {"of": "price"}}, "columns.items.sequence.of: expected a column with vocab or hash"),
        ("items", {"sequence": {"of": "item", "size": 5}}, "expected of, or size, received both"),
        ("items", {"sequence": {"buckets": 5, "size": 7}}, "expected a vocabulary or buckets, received both"),
        ("makers", {"sequence": {"along": "item"}}, "expected another column with a sequence, received 'item'"),
        ("makers", {"sequence": {"along": "makers"}}, "expected another column with a sequence, received 'makers'"),
        ("makers", {"sequence": {"along": "items"}}, "expected a sequence of the same max_values without along"),
        ("times", {"time_gaps": {"along": "makers", "max_values": 5}}, "expected a sequence of the same max_values"),
    ],
)
def test_history_with_an_invalid_reference_is_rejected(column: str, op: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FeaturesConfig.model_validate({"columns": {**COLUMNS, "price": "log", column: op}})
