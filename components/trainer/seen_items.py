"""The items of users' interactions in the training split, which a retrieval does not recommend again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.base.errors import InputError

Ints: TypeAlias = npt.NDArray[np.int64]
Interactions: TypeAlias = tuple[Mapping[str, Ints], Ints]
"""Column → IDs of users, and positions of their items in the index, -1 for an item that is not in it; [rows]."""

_REPEATS = 0.01
"""Maximum share of repeated pairs of user and item at which items do not count as repeated: logs hold duplicates."""


@dataclass(frozen=True)
class SeenPairs:
    """The distinct pairs of user and item.

    Attributes:
      codes: `user * items + position`, ascending; int64 [pairs].
      rows: Number of interactions before duplicates were removed.
    """

    codes: Ints
    rows: int

    @property
    def repeats(self) -> float:
        """Share of interactions whose pair of user and item has occurred before."""
        return 1 - len(self.codes) / self.rows if self.rows else 0.0


class SeenItems:
    """The items to leave out for each user, as a sparse matrix by rows.

    Args:
      feature: Feature with the user's ID.
      pairs: Pairs of `feature` and item.
      users: Number of IDs of the feature.
      items: Number of items of the index.

    Attributes:
      feature: See the argument.
      resources: Variables that the graph of `look_up` reads.
    """

    def __init__(self, feature: str, pairs: SeenPairs, users: int, items: int) -> None:
        self.feature = feature
        user, position = np.divmod(pairs.codes, items)
        starts = np.searchsorted(user, np.arange(users + 1))
        # Use variables, because constants would be part of the graph, which is limited to 2 GB.
        with tf.device("CPU:0"):
            self.resources = [tf.Variable(values, trainable=False) for values in (starts, position.astype(np.int32))]
        self._starts, self._positions = self.resources

    def look_up(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Look up the items of users.

        Args:
          ids: IDs of users, int64 [batch].

        Returns:
          Position of the user in `ids` and position of the item in the index, for every item that is left out; both
          int32 [pairs].
        """
        starts = tf.gather(self._starts, ids)
        counts = tf.cast(tf.gather(self._starts, ids + 1) - starts, tf.int32)
        rows = tf.repeat(tf.range(tf.size(ids)), counts)
        within = tf.range(tf.size(rows)) - tf.repeat(tf.cumsum(counts, exclusive=True), counts)
        return rows, tf.gather(self._positions, tf.repeat(starts, counts) + tf.cast(within, starts.dtype))


def collect(batches: Iterable[Interactions], entries: Mapping[str, int], items: int) -> dict[str, SeenPairs]:
    """Collect the pairs of user and item for each column that may have the user's ID.

    Memory grows with the number of distinct pairs: 8 bytes per pair, and 16 bytes while pairs are merged.

    Args:
      batches: The interactions of the training split.
      entries: Column → number of entries in its vocabulary. A user without an entry shares an ID with other users, so
        the items of this user are not known.
      items: Number of items in the index.
    """
    merged = {name: _Merged() for name in entries}
    for ids, positions in batches:
        for name, users in ids.items():
            known = (users > 0) & (users <= entries[name]) & (positions >= 0)
            merged[name].add(users[known] * items + positions[known])
    return {name: pairs.to_pairs() for name, pairs in merged.items()}


class _Merged:
    """Distinct codes, merged once the pending ones outnumber the merged ones; the amortised cost is n log n."""

    def __init__(self) -> None:
        self._merged, self._pending = np.empty(0, np.int64), list[Ints]()
        self._waiting = self._rows = 0

    def add(self, codes: Ints) -> None:
        self._pending.append(np.unique(codes))
        self._waiting += len(self._pending[-1])
        self._rows += len(codes)
        if self._waiting > max(len(self._merged), 1 << 20):
            self._merge()

    def to_pairs(self) -> SeenPairs:
        self._merge()
        return SeenPairs(self._merged, self._rows)

    def _merge(self) -> None:
        self._merged = np.unique(np.concatenate([self._merged, *self._pending]))
        self._pending, self._waiting = [], 0


def choose(pairs: Mapping[str, SeenPairs], items: int, *, required: bool) -> str | None:
    """Choose the column with the user's ID, and decide whether the user's items are left out.

    Args:
      pairs: Column → its pairs with items.
      items: Number of items in the index.
      required: Whether the config requires it, even if items repeat; `pairs` then contains one column.

    Returns:
      The column; None if all items are returned.

    Raises:
      InputError: If it is required, and no value of the column is in the vocabulary.
    """
    if required:
        [(name, seen)] = pairs.items()
        if not seen.rows:
            raise InputError(
                f"evaluation.exclude_seen: expected interactions of users in the vocabulary of {name!r}, received none",
                "lower its min_frequency, or set evaluation.exclude_seen: false",
            )
        _report(name, seen)
        return name
    fitting = []
    for name, seen in pairs.items():
        several = len(seen.codes) > len(np.unique(seen.codes // items))
        if several and seen.repeats <= _REPEATS:
            fitting.append(name)
        elif several:
            logging.info(
                "evaluation.exclude_seen: %.1f %% of the interactions repeat an item of their value of %s, so that "
                "seen items are not left out by it",
                100 * seen.repeats,
                name,
            )
    if len(fitting) > 1:
        logging.warning(
            "evaluation.exclude_seen: expected one column whose values do not repeat items, received %s, so that seen "
            "items are not left out; set evaluation.exclude_seen to the column with the user's ID, or to false",
            ", ".join(fitting),
        )
    if len(fitting) != 1:
        return None
    [name] = fitting
    _report(name, pairs[name])
    return name


def _report(name: str, pairs: SeenPairs) -> None:
    logging.info(
        "evaluation.exclude_seen: %s pairs of %s and item are left out of metrics and recommendations; %.2f %% of the "
        "interactions repeat one",
        f"{len(pairs.codes):,}",
        name,
        100 * pairs.repeats,
    )


def interactions(
    batches: Iterable[Any], users: Mapping[str, str], item: str, position_of: Callable[[Ints], Ints]
) -> Iterator[Interactions]:
    """Yield the users and the items of the rows with label 1.

    Args:
      batches: Batches of `input_pipeline.evaluation_batches`.
      users: Column that may have the user's ID → feature with its IDs.
      item: Feature with the item's ID.
      position_of: IDs of items → positions in the index, -1 for an item that is not in it.
    """
    for features, label, *_ in batches:
        positive = np.asarray(label).reshape(-1) > 0
        ids = {column: np.asarray(features[name]).reshape(-1)[positive] for column, name in users.items()}
        yield ids, position_of(np.asarray(features[item]).reshape(-1)[positive])
