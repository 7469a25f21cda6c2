"""The index of a retrieval: the vectors of all items of the training split, in the exported model.

It makes a model with these signatures besides those of every model:

    query   the columns of the query → its `vector`
    item    the columns of an item → its `vector`
    top_k   the columns of the query → the `items` with the highest scores, and their `scores`; [batch, k]

Search is exact: a query is compared with each item. The score is the dot product of both vectors. Items that the user
has an interaction with in the training split may be left out, see components/trainer/seen_items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.base.errors import InputError
from components.features import feature_names
from components.features.compact import CompactFeatures
from components.features.plan import FeaturePlan
from components.features.row_parts import in_parts
from components.models import two_tower
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.results.retrieval_outputs import INDEX_SIZE, INTERACTIONS, POPULARITY_RANK, RANK, RECOMMENDED
from components.trainer import input_pipeline, retrieval, seen_items
from components.trainer.input_columns import FeatureSpec
from components.trainer.plan import ExcludeSeen
from components.trainer.probe_rows import MISSING_INT
from components.trainer.seen_items import SeenItems, SeenPairs

_BATCH = 8192
"""Rows that are read, and items whose vectors are computed, at a time."""
_SCORES = 1 << 24
"""The greatest number of scores that are in memory, but for one query."""

_LEFT_OUT = tf.float32.min
"""Score of an item that is left out."""

Values: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Tower:
    """A part of the network.

    Attributes:
      network: from the features of the tower to its vector, [batch, width].
      columns: the raw columns that the features are computed from.
    """

    network: tf_keras.Model
    columns: Sequence[str]


class ItemIndex:
    """All items, those with the most interactions in the training split first.

    Args:
      query: the tower of the query.
      item: the tower of the item; None: the model has no vectors.
      vectors: of the items, float32 [items, width].
      keys: the items' ids as they are in the data, int64 or strings, [items].
      interactions: of the items, int64 [items].
      positions: the number of each id of the vocabulary in the index, -1 for an item that is not in it; int64 [ids].
      most: the greatest number of items to return for a query.
      seen: the items that are left out for each user; None: none are.

    Attributes:
      query: see above.
      towers: the towers of `query` and `item`, whose vectors are signatures.
      resources: the variables that the graphs of its methods read.
    """

    def __init__(
        self,
        query: Tower,
        item: Tower | None,
        *,
        vectors: Values,
        keys: Values,
        interactions: Values,
        positions: Values,
        most: int,
        seen: SeenItems | None = None,
    ) -> None:
        self.query = query
        self.towers = {} if item is None else {"query": query, "item": item}
        self._size, self._most = len(vectors), min(most, len(vectors))
        # As variables, since constants would be in the graph, which is limited to 2 GB.
        with tf.device("CPU:0"):
            self.resources = [tf.Variable(each, trainable=False) for each in (vectors, keys, interactions, positions)]
        self._vectors, self._keys, self._interactions, self._positions = self.resources
        self._missing = tf.constant("" if self._keys.dtype == tf.string else MISSING_INT, self._keys.dtype)
        self._seen = seen
        if seen is not None:
            self.resources = [*self.resources, *seen.resources]

    @property
    def user(self) -> str | None:
        """The feature with the user's ID; None if no items are left out."""
        return self._seen.feature if self._seen else None

    def predictions(
        self, towers: Mapping[str, tf.Tensor], features: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Return the outputs of a prediction for rows with a query and an item.

        Items that are left out for the user of a row have no rank, and are not counted in the ranks of other items.

        Args:
          towers: `query` and `item`, the vectors [batch, width]; and `ids`, the items' numbers in the vocabulary
            [batch].
          features: the inputs of the network, if items are left out; [batch, ...].

        Returns:
          `score`: of query and item, float32 [batch, 1]. `rank`: the number of items with at least the score of the
          row's item, which is its own rank with all items of equal score before it; 0 if it is not in the index; int64
          [batch, 1]. `popularity_rank`: its rank by interactions in the training split, 0 likewise; int64 [batch, 1].
          `recommended`: the positions, from 1 on, of the items with the highest scores; 0 where fewer items remain;
          int64 [batch, k]. `interactions`: their interactions, -1 where fewer items remain; int64 [batch, k].
          `index_size`: number of items, int64 [batch, 1].
        """
        query, item, ids = towers["query"], towers["item"], towers["ids"]
        position = tf.gather(self._positions, ids)

        def ranked(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            of_all, own = self._scores(rows), tf.maximum(rows["position"], 0)
            scores = self._remaining(of_all, rows)
            score = tf.gather(scores, own, batch_dims=1)
            above = tf.reduce_sum(tf.cast(scores >= score[:, tf.newaxis], tf.int64), axis=1)
            best = tf.math.top_k(scores, self._most)
            known = (rows["position"] >= 0) & (score > _LEFT_OUT)
            return {
                "rank": tf.where(known, above, 0),
                "popular": tf.where(known, own + 1 - self._seen_before(rows, own), 0),
                "best": tf.where(best.values > _LEFT_OUT, tf.cast(best.indices, tf.int64), -1),
                "score": tf.where(rows["position"] >= 0, tf.gather(of_all, own, batch_dims=1), 0.0),
            }

        found = in_parts(self._part, ranked, {**self._queries(query, features), "position": position})
        rows = {
            RANK: found["rank"],
            POPULARITY_RANK: found["popular"],
            INDEX_SIZE: tf.fill(tf.shape(ids), tf.constant(self._size, tf.int64)),
        }
        interactions = tf.gather(self._interactions, tf.maximum(found["best"], 0))
        # An item that is not in the index has a vector, too.
        score = tf.reduce_sum(query * item, axis=1) if self.towers else found["score"]
        return {
            "score": score[:, tf.newaxis],
            **{name: values[:, tf.newaxis] for name, values in rows.items()},
            RECOMMENDED: found["best"] + 1,
            INTERACTIONS: tf.where(found["best"] >= 0, interactions, -1),
        }

    def top_k(self, query: tf.Tensor, features: Mapping[str, tf.Tensor] | None = None) -> dict[str, tf.Tensor]:
        """Return the items with the highest scores, the highest first, and these scores; both [batch, k].

        Where fewer items remain for the user, an item is missing: "" or the smallest int64, with the smallest float32
        as its score, since JSON does not have infinity.

        Args:
          query: vectors, float32 [batch, width].
          features: the inputs of the query's tower, if items are left out; [batch, ...].
        """

        def best(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found = tf.math.top_k(self._remaining(self._scores(rows), rows), self._most)
            return {"at": found.indices, "scores": found.values}

        found = in_parts(self._part, best, self._queries(query, features))
        items = tf.gather(self._keys, found["at"])
        return {"items": tf.where(found["scores"] > _LEFT_OUT, items, self._missing), "scores": found["scores"]}

    def _queries(self, query: tf.Tensor, features: Mapping[str, tf.Tensor] | None) -> dict[str, tf.Tensor]:
        if self._seen is None or features is None:
            return {"query": query}
        return {"query": query, "user": tf.reshape(features[self._seen.feature], [-1])}

    def _remaining(self, scores: tf.Tensor, rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the scores, with the smallest float32 for items that are left out; [rows, items]."""
        if self._seen is None:
            return scores
        at = tf.stack(self._seen.of_users(rows["user"]), axis=1)
        return tf.tensor_scatter_nd_update(scores, at, tf.fill(tf.shape(at)[:1], _LEFT_OUT))

    def _seen_before(self, rows: Mapping[str, tf.Tensor], own: tf.Tensor) -> tf.Tensor:
        """Return how many items that are left out are more popular than each row's own item; int64 [rows]."""
        if self._seen is None:
            return tf.zeros_like(own)
        row, position = self._seen.of_users(rows["user"])
        before = tf.cast(tf.cast(position, own.dtype) < tf.gather(own, row), tf.int64)
        return tf.math.unsorted_segment_sum(before, row, tf.size(own))

    @property
    def _part(self) -> int:
        return max(1, _SCORES // self._size)

    def _scores(self, rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the scores of all items for some rows of `_queries`; float32 [rows, items]."""
        return tf.matmul(rows["query"], self._vectors, transpose_b=True)


def build(
    network: tf_keras.Model,
    model: ModelConfig,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    files: Sequence[str],
    spec: FeatureSpec,
    exclude: ExcludeSeen | None = None,
) -> ItemIndex:
    """Collect the items of the training split, and compute their vectors.

    The features of an item are those of its first row, so they have to be the same in all of its rows. An item without
    an entry in the vocabulary has no vector of its own, and is not in the index.

    Args:
      network: the trained one, under no strategy.
      model: the columns of the item.
      plan: the features.
      transform: the transform graph.
      files: the transformed examples of the training split.
      spec: their parsing spec.
      exclude: which items are left out for a user; None: none are.

    Raises:
      InputError: no row has an item, or no user to leave items out for.
    """
    features = inputs(plan, transform.vocabulary_size_by_name)
    names = two_tower.features_of(model, features)
    towers = {which: two_tower.tower(network, which, own) for which, own in names.items()}
    columns = {
        which: tuple(dict.fromkeys(column for name in own for column in features.columns[name]))
        for which, own in names.items()
    }
    catalogue = read_catalogue(plan, transform, files, {name: spec[name] for name in names["item"]}, spec)
    users = {column: plan.vocab_feature(column).name for column in exclude.columns} if exclude else {}
    pairs = read_pairs(users, plan, transform, files, spec, catalogue.positions)
    chosen = seen_items.choose(pairs, len(catalogue.ids), required=exclude.required) if exclude else None
    seen = None
    if chosen is not None:
        count = features.ids[users[chosen]].cardinality
        seen = SeenItems(users[chosen], pairs[chosen], count, len(catalogue.ids))
    return ItemIndex(
        Tower(towers["query"], columns["query"]),
        Tower(towers["item"], columns["item"]),
        vectors=_vectors(towers["item"], catalogue.features, CompactFeatures.find(plan.features)),
        keys=catalogue.keys,
        interactions=catalogue.interactions,
        positions=catalogue.positions,
        most=model.top_k,
        seen=seen,
    )


@dataclass(frozen=True)
class Catalogue:
    """The items of the training split, those with the most interactions first.

    Attributes:
      ids: Numbers in the vocabulary, int64 [items].
      features: Features of each item, from its first row; [items, ...].
      keys, interactions, positions: See `ItemIndex`.
    """

    ids: Values
    features: dict[str, Values]
    keys: Values
    interactions: Values
    positions: Values


def read_catalogue(
    plan: FeaturePlan, transform: tft.TFTransformOutput, files: Sequence[str], wanted: FeatureSpec, spec: FeatureSpec
) -> Catalogue:
    """Read the items that have an entry in the vocabulary, from the training split.

    Args:
      plan: The features.
      transform: The transform graph.
      files: The transformed examples of the training split.
      wanted: Parsing spec of the items' features.
      spec: Parsing spec of all features.

    Raises:
      InputError: No row has an item.
    """
    of_id = plan.item_feature
    entries = transform.vocabulary_by_name(of_id.vocabulary)
    needed = {**wanted, **{name: spec[name] for name in (of_id.name, feature_names.LABEL)}}
    collected = _collected(files, needed, of_id.name, len(entries))
    ids = collected[of_id.name]
    interactions = retrieval.counts(transform, feature_names.ITEM_INTERACTIONS, of_id.vocabulary)[ids - 1]
    order = np.lexsort((ids, -interactions))
    collected, ids = {name: values[order] for name, values in collected.items()}, ids[order]
    positions = np.full(inputs(plan, transform.vocabulary_size_by_name).ids[of_id.name].cardinality, -1, np.int64)
    positions[ids] = np.arange(len(ids))
    is_number = transform.raw_feature_spec()[str(plan.item)].dtype == tf.int64
    keys = [entries[each - 1] for each in ids]
    return Catalogue(
        ids,
        {name: values for name, values in collected.items() if name in wanted},
        np.array([int(key) for key in keys], np.int64) if is_number else np.array(keys, object),
        interactions[order],
        positions,
    )


def read_pairs(
    users: Mapping[str, str],
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    files: Sequence[str],
    spec: FeatureSpec,
    positions: Values,
) -> dict[str, SeenPairs]:
    """Read the pairs of user and item of the training split's interactions, for each column with a user's ID.

    Args:
      users: Column → feature with its IDs.
      plan: The features.
      transform: The transform graph.
      files: The transformed examples of the training split.
      spec: Their parsing spec.
      positions: See `ItemIndex`.
    """
    if not users:
        return {}
    item = plan.item_feature.name
    needed = {name: spec[name] for name in dict.fromkeys((*users.values(), item, feature_names.LABEL))}
    batches = input_pipeline.evaluation_batches(files, needed, _BATCH)
    entries = {name: transform.vocabulary_size_by_name(plan.vocab_feature(name).vocabulary) for name in users}
    rows = seen_items.interactions(batches, users, item, lambda ids: positions[ids])
    return seen_items.collect(rows, entries, int(positions.max()) + 1)


def _collected(files: Sequence[str], spec: FeatureSpec, of_id: str, entries: int) -> dict[str, Values]:
    """Read the features of each item that has an entry in the vocabulary, from its first row; memory grows with items.

    Args:
      files: the transformed examples.
      spec: the parsing spec of the features and the label.
      of_id: the feature of the id.
      entries: number of entries of the vocabulary.

    Raises:
      InputError: no row has such an item.
    """
    seen = np.zeros(entries + 1, bool)
    # A missing item.
    seen[0] = True
    parts: list[dict[str, Values]] = []
    for batch, *_ in input_pipeline.evaluation_batches(files, spec, _BATCH):
        columns = {name: values.numpy() for name, values in batch.items()}
        ids, rows = np.unique(columns[of_id], return_index=True)
        new = (ids <= entries) & ~seen[np.minimum(ids, entries)]
        if new.any():
            seen[ids[new]] = True
            parts.append({name: values[rows[new]] for name, values in columns.items()})
        if seen.all():
            break
    if not parts:
        raise InputError(
            f"model.item: expected rows with an item, received no value of {of_id} in the training split",
            "name the column of the item's id first, and lower its min_frequency",
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _vectors(tower: tf_keras.Model, features: dict[str, Values], compact: CompactFeatures) -> Values:
    compute: Callable[[dict[str, tf.Tensor]], tf.Tensor] = tf.function(
        lambda rows: tower(compact.expand(rows), training=False), autograph=False, reduce_retracing=True
    )
    count = len(next(iter(features.values())))
    parts = (
        compute({name: tf.constant(values[at : at + _BATCH]) for name, values in features.items()})
        for at in range(0, count, _BATCH)
    )
    return np.concatenate([part.numpy() for part in parts])
