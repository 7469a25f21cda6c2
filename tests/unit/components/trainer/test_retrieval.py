"""Tests of retrieval: the loss, and the index of items."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy import special

from components.base.errors import InputError
from components.features import feature_names
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models import two_tower
from components.models.config import ModelConfig
from components.trainer import item_index, retrieval
from components.trainer.head_creation import create_head
from components.trainer.item_index import ItemIndex, Tower
from components.trainer.prediction_head import PredictionHead
from tests.support.data.tolerances import rounding

RANDOM = np.random.default_rng(2)
PLAN = FeaturePlan(
    features=FeaturesConfig.model_validate({"columns": {"user": {"hash": {"buckets": 9}}, "item": "vocab"}}),
    labels=(Label("clicked"),),
    task="retrieval",
    item="item",
)
MODEL = ModelConfig(kind="two_tower", item=("item",), hidden=(4,), temperature=0.5)
ENTRIES = [b"17", b"4", b"30"]


def transform(**lines: list[bytes]) -> Any:
    lines_by_name = {"item_vocab": ENTRIES, feature_names.ITEM_ROWS: [b"50 17", b"30 4", b"10 99", b"10 30"], **lines}
    lines_by_name.setdefault(feature_names.LABEL_COUNTS, [b"60 0", b"40 1"])
    return SimpleNamespace(
        vocabulary_by_name=lines_by_name.__getitem__, vocabulary_size_by_name=lambda name: len(lines_by_name[name])
    )


def head(**lines: list[bytes]) -> PredictionHead:
    return create_head(PLAN, transform(**lines), None, MODEL)


def outputs(query: Any, item: Any, ids: Any) -> Any:
    digits = np.stack(np.divmod(ids, 1 << 16), axis=1)
    return tf.constant(np.concatenate([query, item, digits], axis=1), tf.float32)


def test_loss_is_the_in_batch_crossentropy_corrected_by_item_frequency() -> None:
    query, item = RANDOM.normal(size=(6, 4)), RANDOM.normal(size=(6, 4))
    ids, label = np.array([1, 2, 1, 3, 4, 0]), np.array([1, 1, 0, 1, 1, 0])
    item[2] = item[0]
    losses = head().losses(tf.constant(label)[:, None], outputs(query, item, ids)).numpy()
    # 10 of 100 rows have an item outside the vocabulary, which has ID 4. A missing item is assumed to be as frequent.
    probability = np.array([0.1, 0.5, 0.3, 0.1, 0.1])[ids]
    for row in range(6):
        counted = [column for column in range(6) if ids[column] != ids[row] or column == row]
        scores = query[row] @ item[counted].T / 0.5 - np.log(probability[counted])
        loss = special.logsumexp(scores) - scores[counted.index(row)]
        # The loss is divided by the share of rows with label 1, so that the mean is taken over interactions.
        assert losses[row] == pytest.approx(label[row] * loss / 0.4, rel=1e-4, abs=1e-6)


def test_item_ids_survive_the_float_output_exactly() -> None:
    ids = np.array([0, 1, 65_535, 65_536, 49_999_999])
    vectors = two_tower.vectors(outputs(np.zeros((5, 4)), np.ones((5, 4)), ids))
    np.testing.assert_array_equal(vectors.ids, ids)
    np.testing.assert_array_equal(vectors.item, np.ones((5, 4)))


@pytest.mark.parametrize("counts", [[b"9 0"], [b"5 1", b"4 2"], [b"5 1", b"4 nan"]])
def test_label_must_be_0_or_1(counts: list[bytes]) -> None:
    with pytest.raises(InputError, match="expected 1 for interactions and 0 for other rows"):
        head(label_counts=counts)


def test_all_rows_may_be_interactions() -> None:
    losses = head(label_counts=[b"100 1"]).losses(tf.ones([2, 1]), outputs(np.ones((2, 4)), np.ones((2, 4)), [1, 2]))
    assert np.all(losses.numpy() > 0)


def index(vectors: Any, most: int = 2) -> ItemIndex:
    """Return an index of the items 4 and 17. Item 4 is more popular, and item 30 is not in the index."""
    network = tf_keras.Sequential([tf_keras.Input((2,))])
    return ItemIndex(
        Tower(network, ()),
        Tower(network, ()),
        vectors=np.array(vectors, np.float32),
        keys=np.array([4, 17]),
        interactions=np.array([9, 2]),
        positions=np.array([-1, 1, 0, -1, -1]),
        most=most,
    )


def test_rank_counts_the_items_with_an_equal_or_higher_score() -> None:
    items = index([[1, 0], [0, 1]])
    query = tf.constant([[2.0, 1], [1, 2], [1, 1], [1, 2], [1, 2]])
    ids = tf.constant([1, 1, 1, 3, 0], tf.int64)
    predictions = items.predictions({"query": query, "item": query, "ids": ids})
    assert predictions["rank"].numpy().tolist() == [[2], [1], [2], [0], [0]], "with an equal score it is the last one"
    assert predictions["popularity_rank"].numpy().tolist() == [[2], [2], [2], [0], [0]]
    assert predictions["recommended"].numpy().tolist() == [[1, 2], [2, 1], [1, 2], [2, 1], [2, 1]]
    assert predictions["interactions"].numpy().tolist() == [[9, 2], [2, 9], [9, 2], [2, 9], [2, 9]]
    assert predictions["index_size"].numpy().tolist() == [[2]] * 5
    assert predictions["score"].numpy()[:, 0].tolist() == [5, 5, 2, 5, 5], "whole numbers are exact"
    best = items.top_k(query[:2])
    assert best["items"].numpy().tolist() == [[4, 17], [17, 4]]
    assert best["scores"].numpy().tolist() == [[2, 1], [2, 1]]


def test_predicting_in_parts_gives_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    query = tf.constant(RANDOM.normal(size=(7, 2)), tf.float32)
    rows = {"query": query, "item": query, "ids": tf.constant([1, 2, 1, 2, 0, 1, 2], tf.int64)}
    items = index([[1, 0.2], [0.1, 1]])
    whole, best = items.predictions(rows), items.top_k(query)
    monkeypatch.setattr(item_index, "_SCORES", 4)
    for name, values in items.predictions(rows).items():
        np.testing.assert_array_equal(values, whole[name])
    np.testing.assert_array_equal(items.top_k(query)["items"], best["items"])
    assert items.top_k(query[:0])["items"].shape == (0, 2)


def test_all_items_are_returned_if_there_are_fewer_than_requested() -> None:
    assert index([[1, 0], [0, 1]], most=10).top_k(tf.ones([3, 2]))["items"].shape == (3, 2)


def test_counts_follow_the_order_of_the_vocabulary() -> None:
    counts = retrieval.read_counts(transform(), feature_names.ITEM_ROWS, "item_vocab")
    assert counts.tolist() == [50, 30, 10]
    logs = retrieval.log_probabilities(np.array([50, 0]), 50, 5)
    rounding(40, largest=1 / 50).assert_close(np.exp(logs), [1 / 50, 1, 1 / 50, 1 / 50, 1 / 50])
