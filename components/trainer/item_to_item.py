"""Retrieval with a weight for each pair of items: an item's score is the sum over the items that the user has chosen.

The weights are computed in one pass over the training split, without a network. The exported model contains the weights
and every user's items; see components/trainer/item_index for its signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from scipy import linalg, sparse

from components.base.errors import InputError
from components.features.plan import FeaturePlan
from components.models import layers as parts
from components.models import two_tower
from components.models.config import ModelConfig
from components.models.inputs import Inputs, inputs
from components.trainer import seen_items
from components.trainer.item_index import ItemIndex, Tower, Values, read_catalogue, read_pairs
from components.trainer.plan import TrainingPlan
from components.trainer.seen_items import SeenItems, SeenPairs
from components.trainer.training_rows import TrainingRows

Weights: TypeAlias = npt.NDArray[np.float32]

_BLOCK = 1024
"""Number of items whose similarities are computed at a time."""


class ItemToItemIndex(ItemIndex):
    """All items, with the weights between them.

    A user without an interaction in the training split gets the items by their popularity.

    Args:
      query: The feature with the user's ID.
      weights: Contribution of an item of the user (row) to the score of an item (column), float32 [items, items].
      chosen: The items with which each user has an interaction.
      excludes: Whether these items are left out for the user.
      options: `keys`, `interactions`, `positions` and `most` of ItemIndex.
    """

    def __init__(self, query: Tower, *, weights: Weights, chosen: SeenItems, excludes: bool, **options: Any) -> None:
        super().__init__(query, None, vectors=weights, seen=chosen if excludes else None, **options)
        self._chosen = chosen
        if not excludes:
            self.resources = [*self.resources, *chosen.resources]

    def _collect_queries(self, query: tf.Tensor, features: Mapping[str, tf.Tensor] | None) -> dict[str, tf.Tensor]:
        return {"user": tf.reshape((features or {})[self._chosen.feature], [-1])}

    def _compute_scores(self, rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
        row, position = self._chosen.look_up(rows["user"])
        count = tf.size(rows["user"])
        units = tf.ones_like(row, tf.float32)
        at = tf.cast(tf.stack([row, position], axis=1), tf.int64)
        items = tf.SparseTensor(at, units, tf.cast(tf.stack([count, self._size]), tf.int64))
        scores = tf.sparse.sparse_dense_matmul(items, self._vectors)
        is_known = tf.math.unsorted_segment_sum(units, row, count) > 0
        return tf.where(is_known[:, tf.newaxis], scores, tf.cast(self._interactions, tf.float32))


def build_network(plan: FeaturePlan, features: Inputs) -> tf_keras.Model:
    """Return a network without weights, which passes the item's number on; see `two_tower.vectors`.

    Args:
      plan: The features.
      features: Specs of the features: the IDs of the user and of the item.
    """
    tensors = parts.input_layers(features)
    return tf_keras.Model(tensors, two_tower.item_digits(tensors[plan.item_feature.name]), name="item_to_item")


def build(
    _network: tf_keras.Model, plan: TrainingPlan, transform: tft.TFTransformOutput, rows: TrainingRows
) -> ItemToItemIndex:
    """Compute the weights between the items of the training split; see `item_index.build` for the arguments.

    Raises:
      InputError: If no row has an item, or no user of the vocabulary has an interaction.
    """
    features, model, exclude = plan.features, plan.model, plan.exclude_seen
    [user] = (feature for feature in features.features.declared if feature.columns != (features.item,))
    [column] = user.columns
    catalogue = read_catalogue(features, transform, rows, ())
    user_ids = inputs(features, transform.vocabulary_size_by_name).ids[user.name]
    count, items = user_ids.cardinality, len(catalogue.ids)
    pairs = read_pairs({column: user.name}, features, transform, rows, catalogue.positions)
    if not pairs[column].rows:
        raise InputError(
            f"model.kind: {model.kind} expected interactions of users in the vocabulary of {column!r}, received none",
            "lower its min_frequency",
        )
    excludes = exclude is not None and seen_items.choose(pairs, items, required=exclude.required) is not None
    tensors = parts.input_layers(Inputs({user.name: user_ids}))
    return ItemToItemIndex(
        Tower(tf_keras.Model(tensors, tensors[user.name], name="query"), (column,)),
        weights=compute_weights(model, pairs[column], count, items),
        chosen=SeenItems(user.name, pairs[column], count, items),
        excludes=excludes,
        keys=catalogue.keys,
        interactions=catalogue.interactions,
        positions=catalogue.positions,
        most=model.top_k,
    )


def compute_weights(model: ModelConfig, pairs: SeenPairs, users: int, items: int) -> Weights:
    """Compute the weights between items from the interactions of users; [items, items].

    Args:
      model: The kind and its options.
      pairs: The pairs of user and item.
      users: Number of IDs of users.
      items: Number of items.
    """
    chosen = sparse.csr_matrix((np.ones(len(pairs.codes)), np.divmod(pairs.codes, items)), shape=(users, items))
    if model.kind == "ease":
        return _fit_ease(chosen, model.regularization)
    return _compute_similarities(chosen, model.neighbours, model.shrink)


def _fit_ease(chosen: sparse.csr_matrix, regularization: float) -> Weights:
    """Solve the regression of every item on all other items, with one inverse for all regressions.

    Source: H. Steck, Embarrassingly shallow autoencoders for sparse data, WWW 2019, equation 8.
    """
    # Use float64, because the inverse loses digits. Column-major order lets SciPy overwrite the symmetric matrix.
    gram = (chosen.T @ chosen).toarray(order="F")
    gram[np.diag_indices_from(gram)] += regularization
    inverse: Values = linalg.inv(gram, overwrite_a=True, check_finite=False)
    inverse /= -np.diag(inverse).copy()
    np.fill_diagonal(inverse, 0.0)
    weights: Weights = inverse.astype(np.float32, order="C")
    return weights


def _compute_similarities(chosen: sparse.csr_matrix, neighbours: int, shrink: float) -> Weights:
    """Compute the cosine similarities of items by their users, and keep the most similar items per column.

    Source: B. Sarwar, G. Karypis, J. Konstan and J. Riedl, Item-based collaborative filtering recommendation
    algorithms, WWW 2001.
    """
    items = chosen.shape[1]
    lengths = np.sqrt(np.asarray(chosen.sum(axis=0)).reshape(-1))
    weights: Weights = np.empty((items, items), np.float32)
    for start in range(0, items, _BLOCK):
        block = slice(start, min(start + _BLOCK, items))
        products = (chosen.T @ chosen[:, block]).toarray()
        cosines = np.divide(products, np.outer(lengths, lengths[block]) + shrink, where=products > 0, out=products)
        cosines[np.arange(block.start, block.stop), np.arange(cosines.shape[1])] = 0.0
        if neighbours < items:
            cosines[cosines < np.partition(cosines, -neighbours, axis=0)[-neighbours]] = 0.0
        weights[:, block] = cosines
    return weights
