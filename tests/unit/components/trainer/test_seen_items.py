"""Tests that items a user has seen are excluded from ranks and recommendations, compared with NumPy and pandas."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.trainer import item_index, seen_items
from components.trainer.item_index import ItemIndex, Tower
from components.trainer.probe_rows import MISSING_INT
from components.trainer.seen_items import SeenItems, SeenPairs

ITEMS, USERS, TOP = 12, 7, 4
"""Known users have the IDs 1 to 5. ID 0 stands for a missing user, and ID 6 for all unknown users."""


def interactions(count: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
    random_rows = pd.DataFrame({"user": random.integers(0, USERS, count), "item": random.integers(-1, ITEMS, count)})
    nearly_all_items = pd.DataFrame({"user": 5, "item": np.arange(ITEMS - 2)})
    return pd.concat([random_rows[random_rows["user"] != 5], nearly_all_items], ignore_index=True)


def pairs(rows: pd.DataFrame) -> SeenPairs:
    batches = [({"user": part["user"].to_numpy()}, part["item"].to_numpy()) for part in (rows[:20], rows[20:])]
    return seen_items.collect(batches, {"user": 5}, ITEMS)["user"]


def index(vectors: Any, keys: Any, seen: SeenItems | None) -> ItemIndex:
    network = tf_keras.Sequential([tf_keras.Input((2,))])
    return ItemIndex(
        Tower(network, ()),
        Tower(network, ()),
        vectors=vectors.astype(np.float32),
        keys=keys,
        interactions=np.arange(ITEMS)[::-1] + 5,
        positions=np.append(-1, np.arange(ITEMS)),
        most=TOP,
        seen=seen,
    )


def test_ranks_only_count_items_that_the_user_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Score a few rows at a time, so that several parts are joined.
    monkeypatch.setattr(item_index, "_SCORES", 15 * ITEMS)
    random = np.random.default_rng(4)
    # Products of small integers are exact, so that some scores are equal.
    vectors, query = random.integers(-2, 3, (ITEMS, 2)), random.integers(-2, 3, (40, 2))
    user, item = random.integers(0, USERS, 40), random.integers(-1, ITEMS, 40)
    rows = interactions()
    seen_by_user = rows[rows["user"].between(1, 5) & (rows["item"] >= 0)].groupby("user")["item"].agg(set)
    items = index(vectors, np.arange(100, 100 + ITEMS), SeenItems("user", pairs(rows), USERS, ITEMS))
    vectors_by_tower = {
        name: tf.constant(array, tf.float32) for name, array in (("query", query), ("item", vectors[item]))
    }
    features = {"user": tf.constant(user)}
    towers = {**vectors_by_tower, "ids": tf.constant(item + 1)}
    predictions = {name: tensor.numpy() for name, tensor in items.predictions(towers, features).items()}
    top_k = {name: tensor.numpy() for name, tensor in items.top_k(vectors_by_tower["query"], features).items()}
    for row in range(40):
        unseen = np.array([number for number in range(ITEMS) if number not in seen_by_user.get(user[row], ())])
        scores = vectors[unseen] @ query[row]
        has_rank = item[row] in unseen
        item_score = vectors[item[row]] @ query[row]
        assert predictions["rank"][row, 0] == (np.sum(scores >= item_score) if has_rank else 0)
        assert predictions["popularity_rank"][row, 0] == (np.flatnonzero(unseen == item[row])[0] + 1 if has_rank else 0)
        best_items = unseen[np.argsort(-scores, kind="stable")][:TOP]
        missing = TOP - len(best_items)
        assert predictions["recommended"][row].tolist() == [*(best_items + 1), *[0] * missing]
        assert predictions["interactions"][row].tolist() == [*(ITEMS - 1 - best_items + 5), *[-1] * missing]
        assert top_k["items"][row].tolist() == [*(best_items + 100), *[MISSING_INT] * missing]
        assert np.isfinite(top_k["scores"][row]).all(), "JSON does not have infinity"
    assert (predictions["recommended"] == 0).any(), "a user has seen all items but two"
    empty = items.predictions({name: tensor[:0] for name, tensor in towers.items()}, {"user": features["user"][:0]})
    assert empty["rank"].shape == (0, 1)


def test_missing_item_of_a_text_column_is_an_empty_string() -> None:
    keys = np.array([f"item {number}" for number in range(ITEMS)], object)
    items = index(np.ones((ITEMS, 2)), keys, SeenItems("user", pairs(interactions()), USERS, ITEMS))
    top_items = items.top_k(tf.ones([1, 2]), {"user": tf.constant([5])})["items"].numpy()
    assert top_items.tolist() == [[b"item 10", b"item 11", b"", b""]]


def test_pairs_are_distinct_and_only_of_known_users_and_items() -> None:
    rows = interactions(500)
    known = rows[rows["user"].between(1, 5) & (rows["item"] >= 0)]
    seen_pairs = pairs(rows)
    expected = known.drop_duplicates().sort_values(["user", "item"])
    assert np.stack(np.divmod(seen_pairs.codes, ITEMS), axis=1).tolist() == expected.to_numpy().tolist()
    assert seen_pairs.rows == len(known)
    assert seen_pairs.repeats == pytest.approx(known.duplicated().mean(), abs=1e-12)


def test_only_rows_with_label_1_are_interactions() -> None:
    batch = ({"user_vocab": tf.constant([1, 2, 3]), "item": tf.constant([2, 1, 2])}, tf.constant([[1], [0], [1]]))
    positions = np.array([-1, 4, 9])
    [(users, items)] = seen_items.interactions([batch], {"user": "user_vocab"}, "item", lambda ids: positions[ids])
    assert (users["user"].tolist(), items.tolist()) == ([1, 3], [9, 9])


def pairs_of(user: Any, item: Any) -> SeenPairs:
    codes = np.asarray(user) * 1000 + np.asarray(item)
    return SeenPairs(np.unique(codes), len(codes))


UNIQUE = pairs_of(np.repeat(np.arange(1, 21), 10), np.tile(np.arange(10), 20))
NEARLY = pairs_of(np.append(np.repeat(np.arange(1, 21), 10), 1), np.append(np.tile(np.arange(10), 20), 0))
REPEATED = pairs_of([1, 1, 1, 2, 2], [3, 3, 4, 5, 6])
SINGLE = pairs_of(np.arange(1, 201), np.tile(np.arange(10), 20))


@pytest.mark.parametrize(
    ("pairs_by_column", "chosen", "message"),
    [
        ({"user": UNIQUE}, "user", "200 pairs of user and item are left out"),
        ({"user": NEARLY}, "user", "0.50 % of the interactions repeat one"),
        ({"user": REPEATED}, None, "20.0 % of the interactions repeat an item of their value of user"),
        ({"user": UNIQUE, "country": REPEATED}, "user", "value of country"),
        ({"user": UNIQUE, "row": SINGLE}, "user", "200 pairs"),
        ({"user": UNIQUE, "session": UNIQUE}, None, "received user, session"),
        ({"row": SINGLE}, None, ""),
    ],
)
def test_items_are_excluded_by_a_column_whose_values_do_not_repeat_items(
    pairs_by_column: dict[str, SeenPairs], chosen: str | None, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert seen_items.choose(pairs_by_column, 1000, required=False) == chosen
    assert message in caplog.text


def test_configured_column_is_used_even_if_items_repeat() -> None:
    assert seen_items.choose({"user": REPEATED}, 1000, required=True) == "user"
    with pytest.raises(InputError, match="expected interactions of users in the vocabulary of 'user', received none"):
        seen_items.choose({"user": pairs_of([], [])}, 1000, required=True)
