"""The index of a retrieval: the vectors of all items of the training split, in the exported model.

It makes a model with these signatures besides those of every model:

    query   the columns of the query → its `vector`
    item    the columns of an item → its `vector`
    top_k   the columns of the query → the `items` with the highest scores, and their `scores`; [batch, k]

Search is exact: a query is compared with each item. The score is the dot product of both vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.errors import InputError
from components.features import feature_names
from components.features.plan import FeaturePlan
from components.features.row_parts import in_parts
from components.models import two_tower
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.retrieval_outputs import INDEX_SIZE, INTERACTIONS, POPULARITY_RANK, RANK, RECOMMENDED
from components.trainer import input_pipeline, retrieval
from components.trainer.input_columns import FeatureSpec

_BATCH = 8192
"""Rows that are read, and items whose vectors are computed, at a time."""
_SCORES = 1 << 24
"""The greatest number of scores that are in memory, but for one query."""

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
      item: that of the item.
      vectors: of the items, float32 [items, width].
      keys: the items' ids as they are in the data, int64 or strings, [items].
      interactions: of the items, int64 [items].
      positions: the number of each id of the vocabulary in the index, -1 for an item that is not in it; int64 [ids].
      most: the greatest number of items to return for a query.

    Attributes:
      towers: those of `query` and `item`.
      resources: the variables that the graphs of its methods read.
    """

    def __init__(
        self,
        query: Tower,
        item: Tower,
        *,
        vectors: Values,
        keys: Values,
        interactions: Values,
        positions: Values,
        most: int,
    ) -> None:
        self.towers = {"query": query, "item": item}
        self._size, self._most = len(vectors), min(most, len(vectors))
        # As variables, since constants would be in the graph, which is limited to 2 GB.
        with tf.device("CPU:0"):
            self.resources = [tf.Variable(each, trainable=False) for each in (vectors, keys, interactions, positions)]
        self._vectors, self._keys, self._interactions, self._positions = self.resources

    def predictions(self, towers: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the outputs of a prediction for rows with a query and an item.

        Args:
          towers: `query` and `item`, the vectors [batch, width]; and `ids`, the items' numbers in the vocabulary
            [batch].

        Returns:
          `score`: of query and item, float32 [batch, 1]. `rank`: the number of items with at least the score of the
          row's item, which is its own rank with all items of equal score before it; 0 if it is not in the index; int64
          [batch, 1]. `popularity_rank`: its rank by interactions in the training split, 0 likewise; int64 [batch, 1].
          `recommended`: the popularity ranks of the items with the highest scores, int64 [batch, k]. `interactions`:
          their interactions, int64 [batch, k]. `index_size`: number of items, int64 [batch, 1].
        """
        query, item, ids = towers["query"], towers["item"], towers["ids"]
        position = tf.gather(self._positions, ids)

        def ranked(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            scores = self._scores(rows["query"])
            own = tf.gather(scores, tf.maximum(rows["position"], 0), batch_dims=1)
            above = tf.reduce_sum(tf.cast(scores >= own[:, tf.newaxis], tf.int64), axis=1)
            return {"above": above, "best": tf.cast(tf.math.top_k(scores, self._most).indices, tf.int64)}

        found = in_parts(self._part, ranked, {"query": query, "position": position})
        known = position >= 0
        rows = {
            RANK: tf.where(known, found["above"], 0),
            POPULARITY_RANK: position + 1,
            INDEX_SIZE: tf.fill(tf.shape(ids), tf.constant(self._size, tf.int64)),
        }
        return {
            "score": tf.reduce_sum(query * item, axis=1, keepdims=True),
            **{name: values[:, tf.newaxis] for name, values in rows.items()},
            RECOMMENDED: found["best"] + 1,
            INTERACTIONS: tf.gather(self._interactions, found["best"]),
        }

    def top_k(self, query: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the items with the highest scores, the highest first, and these scores; both [batch, k].

        Args:
          query: vectors, float32 [batch, width].
        """

        def best(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found = tf.math.top_k(self._scores(rows["query"]), self._most)
            return {"at": found.indices, "scores": found.values}

        found = in_parts(self._part, best, {"query": query})
        return {"items": tf.gather(self._keys, found["at"]), "scores": found["scores"]}

    @property
    def _part(self) -> int:
        return max(1, _SCORES // self._size)

    def _scores(self, query: tf.Tensor) -> tf.Tensor:
        return tf.matmul(query, self._vectors, transpose_b=True)


def build(
    network: tf_keras.Model,
    model: ModelConfig,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    files: Sequence[str],
    spec: FeatureSpec,
) -> ItemIndex:
    """Collects the items of the training split, and computes their vectors.

    The features of an item are those of its first row, so they have to be the same in all of its rows. An item without
    an entry in the vocabulary has no vector of its own, and is not in the index.

    Args:
      network: the trained one, under no strategy.
      model: the columns of the item.
      plan: the features.
      transform: the transform graph.
      files: the transformed examples of the training split.
      spec: their parsing spec.

    Raises:
      InputError: no row has an item.
    """
    features = inputs(plan, transform.vocabulary_size_by_name)
    names = two_tower.features_of(model, features)
    towers = {which: two_tower.tower(network, which, own) for which, own in names.items()}
    columns = {
        which: tuple(dict.fromkeys(column for name in own for column in features.columns[name]))
        for which, own in names.items()
    }
    of_id = plan.item_feature
    entries = transform.vocabulary_by_name(of_id.vocabulary)
    needed = {name: spec[name] for name in (*names["item"], feature_names.LABEL)}
    collected = _collected(files, needed, of_id.name, len(entries))
    ids = collected[of_id.name]
    interactions = retrieval.counts(transform, feature_names.ITEM_INTERACTIONS, of_id.vocabulary)[ids - 1]
    order = np.lexsort((ids, -interactions))
    collected, ids = {name: values[order] for name, values in collected.items()}, ids[order]
    positions = np.full(features.ids[of_id.name].cardinality, -1, np.int64)
    positions[ids] = np.arange(len(ids))
    is_number = transform.raw_feature_spec()[str(plan.item)].dtype == tf.int64
    keys = [entries[each - 1] for each in ids]
    return ItemIndex(
        Tower(towers["query"], columns["query"]),
        Tower(towers["item"], columns["item"]),
        vectors=_vectors(towers["item"], collected),
        keys=np.array([int(key) for key in keys], np.int64) if is_number else np.array(keys, object),
        interactions=interactions[order],
        positions=positions,
        most=model.top_k,
    )


def _collected(files: Sequence[str], spec: FeatureSpec, of_id: str, entries: int) -> dict[str, Values]:
    """Reads the features of each item that has an entry in the vocabulary, from its first row; memory grows with items.

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


def _vectors(tower: tf_keras.Model, features: dict[str, Values]) -> Values:
    compute: Callable[[dict[str, tf.Tensor]], tf.Tensor] = tf.function(
        lambda rows: tower(rows, training=False), autograph=False, reduce_retracing=True
    )
    count = len(next(iter(features.values())))
    parts = (
        compute({name: tf.constant(values[at : at + _BATCH]) for name, values in features.items()})
        for at in range(0, count, _BATCH)
    )
    return np.concatenate([part.numpy() for part in parts])
