"""Items that a user has seen are left out of ranks and recommendations, as NumPy and pandas leave them out."""

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
"""Users have the IDs 1 to 5; 0 stands for a missing one, and 6 for all others."""


def interactions(count: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
    found = pd.DataFrame({"user": random.integers(0, USERS, count), "item": random.integers(-1, ITEMS, count)})
    everything = pd.DataFrame({"user": 5, "item": np.arange(ITEMS - 2)})
    return pd.concat([found[found["user"] != 5], everything], ignore_index=True)


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


def test_ranks_are_those_among_the_items_that_the_user_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # A few rows at a time.
    monkeypatch.setattr(item_index, "_SCORES", 15 * ITEMS)
    random = np.random.default_rng(4)
    # Whole numbers, whose products are exact, so that some scores are equal.
    vectors, query = random.integers(-2, 3, (ITEMS, 2)), random.integers(-2, 3, (40, 2))
    user, item = random.integers(0, USERS, 40), random.integers(-1, ITEMS, 40)
    rows = interactions()
    seen_of = rows[rows["user"].between(1, 5) & (rows["item"] >= 0)].groupby("user")["item"].agg(set)
    made = index(vectors, np.arange(100, 100 + ITEMS), SeenItems("user", pairs(rows), USERS, ITEMS))
    given = {name: tf.constant(each, tf.float32) for name, each in (("query", query), ("item", vectors[item]))}
    features = {"user": tf.constant(user)}
    rows_given = {**given, "ids": tf.constant(item + 1)}
    found = {name: each.numpy() for name, each in made.predictions(rows_given, features).items()}
    best = {name: each.numpy() for name, each in made.top_k(given["query"], features).items()}
    for row in range(40):
        left = np.array([each for each in range(ITEMS) if each not in seen_of.get(user[row], ())])
        scores = vectors[left] @ query[row]
        has_rank = item[row] in left
        own = vectors[item[row]] @ query[row]
        assert found["rank"][row, 0] == (np.sum(scores >= own) if has_rank else 0)
        assert found["popularity_rank"][row, 0] == (np.flatnonzero(left == item[row])[0] + 1 if has_rank else 0)
        first = left[np.argsort(-scores, kind="stable")][:TOP]
        missing = TOP - len(first)
        assert found["recommended"][row].tolist() == [*(first + 1), *[0] * missing]
        assert found["interactions"][row].tolist() == [*(ITEMS - 1 - first + 5), *[-1] * missing]
        assert best["items"][row].tolist() == [*(first + 100), *[MISSING_INT] * missing]
        assert np.isfinite(best["scores"][row]).all(), "JSON does not have infinity"
    assert (found["recommended"] == 0).any(), "a user has seen all items but two"
    empty = made.predictions({name: each[:0] for name, each in rows_given.items()}, {"user": features["user"][:0]})
    assert empty["rank"].shape == (0, 1)


def test_a_missing_item_of_a_text_column_is_empty() -> None:
    keys = np.array([f"item {each}" for each in range(ITEMS)], object)
    made = index(np.ones((ITEMS, 2)), keys, SeenItems("user", pairs(interactions()), USERS, ITEMS))
    found = made.top_k(tf.ones([1, 2]), {"user": tf.constant([5])})["items"].numpy()
    assert found.tolist() == [[b"item 10", b"item 11", b"", b""]]


def test_pairs_are_the_distinct_ones_of_known_users_and_items() -> None:
    rows = interactions(500)
    known = rows[rows["user"].between(1, 5) & (rows["item"] >= 0)]
    found = pairs(rows)
    expected = known.drop_duplicates().sort_values(["user", "item"])
    assert np.stack(np.divmod(found.codes, ITEMS), axis=1).tolist() == expected.to_numpy().tolist()
    assert found.rows == len(known)
    assert found.repeats == pytest.approx(known.duplicated().mean(), abs=1e-12)


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
    ("found", "chosen", "message"),
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
def test_items_are_left_out_by_the_column_whose_values_do_not_repeat_them(
    found: dict[str, SeenPairs], chosen: str | None, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert seen_items.choose(found, 1000, required=False) == chosen
    assert message in caplog.text


def test_a_named_column_is_used_although_items_repeat() -> None:
    assert seen_items.choose({"user": REPEATED}, 1000, required=True) == "user"
    with pytest.raises(InputError, match="expected interactions of users in the vocabulary of 'user', received none"):
        seen_items.choose({"user": pairs_of([], [])}, 1000, required=True)
