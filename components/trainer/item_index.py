"""The index of a retrieval: the vectors of all items of the training split, in the exported model.

A model with an index has these signatures in addition to the signatures of every model:

    query   the columns of the query → its `vector`
    item    the columns of an item → its `vector`
    top_k   the columns of the query → the `items` with the highest scores, and their `scores`; [batch, k]

Search is exact: a query is compared with every item. The score is the dot product of both vectors. Items with which the
user interacted in the training split may be left out, see components/trainer/seen_items.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from components.models.inputs import inputs
from components.results.retrieval_outputs import INDEX_SIZE, INTERACTIONS, POPULARITY_RANK, RANK, RECOMMENDED
from components.trainer import input_pipeline, retrieval, seen_items
from components.trainer.input_columns import FeatureSpec
from components.trainer.plan import TrainingPlan
from components.trainer.probe_rows import MISSING_INT
from components.trainer.seen_items import SeenItems, SeenPairs
from components.trainer.training_rows import TrainingRows

_BATCH = 8192
"""Number of rows to read, and of items whose vectors are computed, at a time."""
_SCORES = 1 << 24
"""Maximum number of scores in memory, unless a single query has more."""

_LEFT_OUT = tf.float32.min
"""Score of an item that is left out."""

Values: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Tower:
    """A part of the network.

    Attributes:
      network: Network from the features of the tower to its vector, [batch, width].
      columns: The raw columns from which the features are computed.
    """

    network: tf_keras.Model
    columns: Sequence[str]


class ItemIndex:
    """All items, those with the most interactions in the training split first.

    Args:
      query: The tower of the query.
      item: The tower of the item; None if the model does not compute vectors.
      vectors: Vectors of the items, float32 [items, width].
      keys: IDs of the items as they are in the data, int64 or strings, [items].
      interactions: Number of interactions per item, int64 [items].
      positions: ID in the vocabulary → position in the index, -1 for an item that is not in the index; int64 [ids].
      most: Maximum number of items to return for a query.
      seen: The items to leave out for each user; if None, all items are returned.

    Attributes:
      query: See the argument.
      towers: The towers `query` and `item`, whose vectors are signatures.
      resources: The variables that the graphs of its methods read.
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
        # Use variables, because constants would be part of the graph, which is limited to 2 GB.
        with tf.device("CPU:0"):
            self.resources = [
                tf.Variable(values, trainable=False) for values in (vectors, keys, interactions, positions)
            ]
        self._vectors, self._keys, self._interactions, self._positions = self.resources
        self._missing = tf.constant("" if self._keys.dtype == tf.string else MISSING_INT, self._keys.dtype)
        self._seen = seen
        if seen is not None:
            self.resources = [*self.resources, *seen.resources]

    @property
    def user(self) -> str | None:
        """The feature with the user's ID; None if all items are returned."""
        return self._seen.feature if self._seen else None

    def predictions(
        self, towers: Mapping[str, tf.Tensor], features: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Return the outputs of a prediction for rows with a query and an item.

        Items that are left out for the user of a row do not get a rank, and do not count in the ranks of other items.

        Args:
          towers: `query` and `item`, the vectors [batch, width]; and `ids`, the items' numbers in the vocabulary
            [batch].
          features: The inputs of the network if items are left out; [batch, ...].

        Returns:
          `score`: Score of query and item, float32 [batch, 1]. `rank`: number of items that score at least as high as
          the row's item, which is the rank of the item after all items with an equal score; 0 if it is not in the
          index; int64 [batch, 1]. `popularity_rank`: rank of the item by interactions in the training split, 0 if it is
          not in the index; int64 [batch, 1]. `recommended`: positions, from 1 on, of the items with the highest scores;
          0 where fewer items remain; int64 [batch, k]. `interactions`: number of interactions of the recommended items,
          -1 where fewer items remain; int64 [batch, k]. `index_size`: number of items, int64 [batch, 1].
        """
        query, item, ids = towers["query"], towers["item"], towers["ids"]
        position = tf.gather(self._positions, ids)

        def rank(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            all_scores, row_item = self._compute_scores(rows), tf.maximum(rows["position"], 0)
            scores = self._leave_out(all_scores, rows)
            score = tf.gather(scores, row_item, batch_dims=1)
            above = tf.reduce_sum(tf.cast(scores >= score[:, tf.newaxis], tf.int64), axis=1)
            best = tf.math.top_k(scores, self._most)
            known = (rows["position"] >= 0) & (score > _LEFT_OUT)
            return {
                "rank": tf.where(known, above, 0),
                "popular": tf.where(known, row_item + 1 - self._count_seen_before(rows, row_item), 0),
                "best": tf.where(best.values > _LEFT_OUT, tf.cast(best.indices, tf.int64), -1),
                "score": tf.where(rows["position"] >= 0, tf.gather(all_scores, row_item, batch_dims=1), 0.0),
            }

        result = in_parts(self._part, rank, {**self._collect_queries(query, features), "position": position})
        rows = {
            RANK: result["rank"],
            POPULARITY_RANK: result["popular"],
            INDEX_SIZE: tf.fill(tf.shape(ids), tf.constant(self._size, tf.int64)),
        }
        interactions = tf.gather(self._interactions, tf.maximum(result["best"], 0))
        # With towers, compute the score from the vectors: an item that is not in the index has a vector, too.
        score = tf.reduce_sum(query * item, axis=1) if self.towers else result["score"]
        return {
            "score": score[:, tf.newaxis],
            **{name: values[:, tf.newaxis] for name, values in rows.items()},
            RECOMMENDED: result["best"] + 1,
            INTERACTIONS: tf.where(result["best"] >= 0, interactions, -1),
        }

    def top_k(self, query: tf.Tensor, features: Mapping[str, tf.Tensor] | None = None) -> dict[str, tf.Tensor]:
        """Return the items with the highest scores, the highest first, and these scores; both [batch, k].

        Where fewer items remain for the user, the item is "" or the smallest int64, and its score is the smallest
        float32, because JSON does not support infinity.

        Args:
          query: Vectors, float32 [batch, width].
          features: The inputs of the query's tower if items are left out; [batch, ...].
        """

        def best(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            top = tf.math.top_k(self._leave_out(self._compute_scores(rows), rows), self._most)
            return {"at": top.indices, "scores": top.values}

        result = in_parts(self._part, best, self._collect_queries(query, features))
        items = tf.gather(self._keys, result["at"])
        return {"items": tf.where(result["scores"] > _LEFT_OUT, items, self._missing), "scores": result["scores"]}

    def _collect_queries(self, query: tf.Tensor, features: Mapping[str, tf.Tensor] | None) -> dict[str, tf.Tensor]:
        if self._seen is None or features is None:
            return {"query": query}
        return {"query": query, "user": tf.reshape(features[self._seen.feature], [-1])}

    def _leave_out(self, scores: tf.Tensor, rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Replace the scores of items that are left out by the smallest float32; [rows, items]."""
        if self._seen is None:
            return scores
        at = tf.stack(self._seen.look_up(rows["user"]), axis=1)
        return tf.tensor_scatter_nd_update(scores, at, tf.fill(tf.shape(at)[:1], _LEFT_OUT))

    def _count_seen_before(self, rows: Mapping[str, tf.Tensor], item: tf.Tensor) -> tf.Tensor:
        """Count the items that are left out and more popular than the row's item; int64 [rows]."""
        if self._seen is None:
            return tf.zeros_like(item)
        row, position = self._seen.look_up(rows["user"])
        before = tf.cast(tf.cast(position, item.dtype) < tf.gather(item, row), tf.int64)
        return tf.math.unsorted_segment_sum(before, row, tf.size(item))

    @property
    def _part(self) -> int:
        return max(1, _SCORES // self._size)

    def _compute_scores(self, rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Compute the scores of all items for rows of `_queries`; float32 [rows, items]."""
        return tf.matmul(rows["query"], self._vectors, transpose_b=True)


def build(
    network: tf_keras.Model, plan: TrainingPlan, transform: tft.TFTransformOutput, rows: TrainingRows
) -> ItemIndex:
    """Collect the items of the training split, and compute their vectors.

    The features of an item are read from its first row, so they must be the same in all of its rows. An item without
    an entry in the vocabulary shares its vector with other items, and is not in the index.

    Args:
      network: The trained network, under no strategy.
      plan: The features, the model, and the items to leave out for a user.
      transform: The transform graph.
      rows: The rows of the training split.

    Raises:
      InputError: If no row has an item, or items must be left out and no user is known.
    """
    features = inputs(plan.features, transform.vocabulary_size_by_name)
    names = two_tower.features_of(plan.model, features)
    towers = {which: two_tower.tower(network, which, group) for which, group in names.items()}
    columns = {
        which: tuple(dict.fromkeys(column for name in group for column in features.columns[name]))
        for which, group in names.items()
    }
    catalogue = read_catalogue(plan.features, transform, rows, names["item"])
    exclude = plan.exclude_seen
    users = {column: plan.features.vocab_feature(column).name for column in exclude.columns} if exclude else {}
    pairs = read_pairs(users, plan.features, transform, rows, catalogue.positions)
    chosen = seen_items.choose(pairs, len(catalogue.ids), required=exclude.required) if exclude else None
    seen = None
    if chosen is not None:
        count = features.ids[users[chosen]].cardinality
        seen = SeenItems(users[chosen], pairs[chosen], count, len(catalogue.ids))
    return ItemIndex(
        Tower(towers["query"], columns["query"]),
        Tower(towers["item"], columns["item"]),
        vectors=_compute_vectors(towers["item"], catalogue.features, rows.compact),
        keys=catalogue.keys,
        interactions=catalogue.interactions,
        positions=catalogue.positions,
        most=plan.model.top_k,
        seen=seen,
    )


@dataclass(frozen=True)
class Catalogue:
    """The items of the training split, those with the most interactions first.

    Attributes:
      ids: Numbers in the vocabulary, int64 [items].
      features: Features of the items, from their first rows; [items, ...].
      keys, interactions, positions: see `ItemIndex`.
    """

    ids: Values
    features: dict[str, Values]
    keys: Values
    interactions: Values
    positions: Values


def read_catalogue(
    plan: FeaturePlan, transform: tft.TFTransformOutput, rows: TrainingRows, names: Collection[str]
) -> Catalogue:
    """Read the items that have an entry in the vocabulary, from the training split.

    Args:
      plan: The features.
      transform: The transform graph.
      rows: The rows of the training split.
      names: The items' features.

    Raises:
      InputError: If no row has an item.
    """
    item = plan.item_feature
    entries = transform.vocabulary_by_name(item.vocabulary)
    needed = {name: rows.spec[name] for name in (*names, item.name, feature_names.LABEL)}
    collected = _collect_features(rows.train_files, needed, item.name, len(entries))
    ids = collected[item.name]
    interactions = retrieval.read_counts(transform, feature_names.ITEM_INTERACTIONS, item.vocabulary)[ids - 1]
    order = np.lexsort((ids, -interactions))
    collected, ids = {name: values[order] for name, values in collected.items()}, ids[order]
    positions = np.full(inputs(plan, transform.vocabulary_size_by_name).ids[item.name].cardinality, -1, np.int64)
    positions[ids] = np.arange(len(ids))
    is_number = transform.raw_feature_spec()[str(plan.item)].dtype == tf.int64
    keys = [entries[number - 1] for number in ids]
    return Catalogue(
        ids,
        {name: values for name, values in collected.items() if name in names},
        np.array([int(key) for key in keys], np.int64) if is_number else np.array(keys, object),
        interactions[order],
        positions,
    )


def read_pairs(
    users: Mapping[str, str],
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    rows: TrainingRows,
    positions: Values,
) -> dict[str, SeenPairs]:
    """Read the pairs of user and item of the training split's interactions, for each column with a user's ID.

    Args:
      users: Column → feature with its IDs.
      plan: The features.
      transform: The transform graph.
      rows: The rows of the training split.
      positions: Positions of the items, see `ItemIndex`.
    """
    if not users:
        return {}
    item = plan.item_feature.name
    needed = {name: rows.spec[name] for name in (*users.values(), item, feature_names.LABEL)}
    batches = input_pipeline.evaluation_batches(rows.train_files, needed, _BATCH)
    entries = {name: transform.vocabulary_size_by_name(plan.vocab_feature(name).vocabulary) for name in users}
    interactions = seen_items.interactions(batches, users, item, lambda ids: positions[ids])
    return seen_items.collect(interactions, entries, int(positions.max()) + 1)


def _collect_features(files: Sequence[str], spec: FeatureSpec, id_name: str, entries: int) -> dict[str, Values]:
    """Read the features of items in the vocabulary from the first row of every item; memory grows with items.

    Args:
      files: The transformed examples.
      spec: The parsing spec of the features and the label.
      id_name: The feature of the item's ID.
      entries: Number of entries of the vocabulary.

    Raises:
      InputError: If no row has such an item.
    """
    seen = np.zeros(entries + 1, bool)
    # ID 0 is a missing item.
    seen[0] = True
    parts: list[dict[str, Values]] = []
    for batch, *_ in input_pipeline.evaluation_batches(files, spec, _BATCH):
        columns = {name: values.numpy() for name, values in batch.items()}
        ids, rows = np.unique(columns[id_name], return_index=True)
        new = (ids <= entries) & ~seen[np.minimum(ids, entries)]
        if new.any():
            seen[ids[new]] = True
            parts.append({name: values[rows[new]] for name, values in columns.items()})
        if seen.all():
            break
    if not parts:
        raise InputError(
            f"model.item: expected rows with an item, received no value of {id_name} in the training split",
            "name the column of the item's ID first, and lower its min_frequency",
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _compute_vectors(tower: tf_keras.Model, features: dict[str, Values], compact: CompactFeatures) -> Values:
    compute: Callable[[dict[str, tf.Tensor]], tf.Tensor] = tf.function(
        lambda rows: tower(compact.expand(rows), training=False), autograph=False, reduce_retracing=True
    )
    count = len(next(iter(features.values())))
    parts = (
        compute({name: tf.constant(values[at : at + _BATCH]) for name, values in features.items()})
        for at in range(0, count, _BATCH)
    )
    return np.concatenate([part.numpy() for part in parts])
