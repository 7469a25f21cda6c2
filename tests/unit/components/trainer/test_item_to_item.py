"""Tests of item-to-item models: weights follow the published definitions, and scores are sums of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import cosine_similarity

from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.feature_spec import Ids
from components.features.plan import FeaturePlan
from components.models import two_tower
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer import item_to_item
from components.trainer.item_index import Tower
from components.trainer.item_to_item import ItemToItemIndex, compute_weights
from components.trainer.seen_items import SeenItems, SeenPairs

USERS, ITEMS = 40, 9
CHOSEN = np.random.default_rng(5).random((USERS, ITEMS)) < np.linspace(0.7, 0.2, ITEMS)
# User ID 0 stands for a missing user, and unknown users share the last ID. Neither ID has interactions.
CHOSEN[[0, USERS - 1]] = False
PAIRS = SeenPairs(np.flatnonzero(CHOSEN), int(CHOSEN.sum()))


def weights(**model: Any) -> Any:
    config = ModelConfig.model_validate({"item": ["item"], **model})
    return compute_weights(config, PAIRS, USERS, ITEMS)


@pytest.mark.parametrize("regularization", [0.5, 20.0])
def test_weights_of_ease_equal_a_ridge_regression_of_every_item_on_the_others(regularization: float) -> None:
    item_weights = weights(kind="ease", regularization=regularization)
    assert item_weights.dtype == np.float32
    for item in range(ITEMS):
        other_items = [other_item for other_item in range(ITEMS) if other_item != item]
        ridge = Ridge(regularization, fit_intercept=False).fit(CHOSEN[:, other_items], CHOSEN[:, item])
        np.testing.assert_allclose(item_weights[other_items, item], ridge.coef_, rtol=1e-4, atol=1e-5)
        assert item_weights[item, item] == 0


@pytest.mark.parametrize("block", [4, 100])
def test_weights_of_item_knn_are_the_cosines_of_the_nearest_neighbours(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_to_item, "_BLOCK", block)
    cosines = cosine_similarity(CHOSEN.T.astype(float))
    np.fill_diagonal(cosines, 0)
    np.testing.assert_allclose(weights(kind="item_knn", neighbours=100), cosines, rtol=1e-5, atol=1e-7)
    nearest = np.argsort(-cosines, axis=0, kind="stable")[:3]
    expected = np.zeros_like(cosines)
    np.put_along_axis(expected, nearest, np.take_along_axis(cosines, nearest, axis=0), axis=0)
    np.testing.assert_allclose(weights(kind="item_knn", neighbours=3), expected, rtol=1e-5, atol=1e-7)
    lengths = np.sqrt(CHOSEN.sum(axis=0))
    product = np.outer(lengths, lengths)
    shrunk = cosines * product / (product + 5)
    np.testing.assert_allclose(weights(kind="item_knn", shrink=5), shrunk, rtol=1e-5, atol=1e-7)


def test_items_without_interactions_are_similar_to_no_item() -> None:
    config = ModelConfig(kind="item_knn", item=("item",))
    item_weights = compute_weights(config, SeenPairs(np.array([3, 4]), 2), 3, 3)
    # User 1 has the items 0 and 1; item 2 occurs only in rows with label 0.
    np.testing.assert_allclose(item_weights, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("excludes", [True, False])
def test_scores_are_sums_of_weights_and_unknown_users_get_popular_items(excludes: bool) -> None:
    matrix = weights(kind="ease", regularization=5.0)
    popularity = np.arange(ITEMS)[::-1] + 30
    seen = SeenItems("user", PAIRS, USERS, ITEMS)
    network = tf_keras.Sequential([tf_keras.Input((), dtype="int64")])
    index = ItemToItemIndex(
        Tower(network, ("user",)),
        weights=matrix,
        chosen=seen,
        excludes=excludes,
        keys=np.arange(100, 100 + ITEMS),
        interactions=popularity,
        positions=np.append(-1, np.arange(ITEMS)),
        most=4,
    )
    assert not index.towers, "there are no vectors to export"
    assert index.user == ("user" if excludes else None)
    user = np.repeat(np.arange(USERS), ITEMS + 1)
    item = np.tile(np.arange(-1, ITEMS), USERS)
    features = {"user": tf.constant(user)}
    no_vectors = tf.zeros([len(user), 0])
    towers = {"query": no_vectors, "item": no_vectors, "ids": tf.constant(item + 1)}
    predictions = {name: values.numpy() for name, values in index.predictions(towers, features).items()}
    top_k = {name: values.numpy() for name, values in index.top_k(tf.constant(user), features).items()}
    scores = CHOSEN.astype(float) @ matrix
    scores[~CHOSEN.any(axis=1)] = popularity
    for row in range(len(user)):
        row_scores = scores[user[row]]
        hidden = CHOSEN[user[row]] if excludes else np.zeros(ITEMS, bool)
        remaining = np.where(hidden, -np.inf, row_scores)
        known = item[row] >= 0
        assert predictions["score"][row, 0] == pytest.approx(row_scores[item[row]] if known else 0, rel=1e-4, abs=1e-5)
        rank = (remaining >= remaining[item[row]] - 1e-5).sum() if known and not hidden[item[row]] else 0
        assert predictions["rank"][row, 0] == rank
        count = min(4, int((~hidden).sum()))
        best_items = np.argsort(-remaining, kind="stable")[:count]
        assert top_k["items"][row, :count].tolist() == (best_items + 100).tolist()
        np.testing.assert_allclose(top_k["scores"][row, :count], remaining[best_items], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ease", "item_knn"])
def test_network_outputs_the_id_of_the_item(kind: str) -> None:
    columns = FeaturesConfig.model_validate({"columns": {"user": "vocab", "item": "vocab"}})
    plan = FeaturePlan(features=columns, labels=(Label("label"),), task="retrieval", item="item")
    user, item = (feature.name for feature in plan.features.declared)
    network = item_to_item.build_network(plan, Inputs({user: Ids(9), item: Ids(200_000)}))
    ids = np.array([0, 7, 70_000, 199_999])
    output = network({user: tf.ones(4, tf.int64), item: tf.constant(ids)})
    assert output.shape[1] == two_tower.outputs(ModelConfig(kind=kind, item=("item",)))
    np.testing.assert_array_equal(two_tower.vectors(output).ids, ids)
    assert not network.variables
