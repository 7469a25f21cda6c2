"""Forests: the sum of decision trees, computed by plain TensorFlow operations, which every model server has.

A forest reads a matrix with one float32 column for each number, ordered id or category, and one for each word that it
knows. Training and serving make the matrix by the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Ids
from components.features.plan import FeaturePlan
from components.models import layers as parts
from components.models.inputs import Inputs

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int32]

Join: TypeAlias = Callable[[tf.Tensor], tf.Tensor]

NO_TREE = -1
"""The root where a logit has fewer trees than others."""
_TOGETHER = 32
"""Trees that are walked together: enough work for one operation, and small tensors for batches of 65,536 rows."""


class TreeInput(NamedTuple):
    """The columns of the matrix that come from one transformed feature.

    Attributes:
      feature: Its name.
      kind: Number: its numbers as they are, or an id whose order matters; sum: the sum of its bins, which has the order
        of the number itself; category: the position of its id in `ids`, from 1 on, or 0; words: for each of `ids`,
        whether it is among the feature's ids.
      width: Number of columns; 0 if it follows from `ids`.
      ids: Sorted.
    """

    feature: str
    kind: Literal["number", "sum", "category", "words"]
    width: int = 1
    ids: tuple[int, ...] = ()

    @property
    def columns(self) -> int:
        """Number of columns of the matrix."""
        return len(self.ids) if self.kind == "words" else self.width


class Trees(NamedTuple):
    """A forest as arrays. A node goes on to `below`, or to the node after that if its condition is true.

    The condition of a number, or of several in an oblique split, is `sum of weight * value >= threshold`; that of a
    category, whether `members` is true at the sum of `categories` and the category. A leaf goes on to itself.

    Attributes:
      inputs: The columns of the matrix, in order.
      bias: The logits of no tree, float32 [outputs].
      roots: The first node of each tree, or NO_TREE, int32 [trees]; tree number i adds to logit i % outputs.
      columns: Of the matrix, int32 [nodes, most columns of a condition].
      weights: Of these columns, float32 of the same shape; 0 for one that the condition does not read.
      threshold: float32 [nodes]; NaN in a leaf and for a category.
      categories: The first one of a category's condition in `members`; -1 for another node; int32 [nodes].
      below: int32 [nodes].
      value: That of a leaf, float32 [nodes].
      members: Bool.
      depth: The greatest number of conditions on the way to a leaf.
    """

    inputs: tuple[TreeInput, ...]
    bias: Floats
    roots: Ints
    columns: Ints
    weights: Floats
    threshold: Floats
    categories: Ints
    below: Ints
    value: Floats
    members: npt.NDArray[np.bool_]
    depth: int


def tree_inputs(plan: FeaturePlan, inputs: Inputs) -> tuple[TreeInput, ...]:
    """Chooses the features that a forest reads; ids are not yet chosen.

    Numbers that have the same order in every row lead to the same trees, so one of each column suffices. The ids of a
    column that has a number too are left out: they say nothing new, and many categories overfit.
    """
    chosen: list[TreeInput] = []
    ordered: dict[str, int] = {}
    for feature in plan.features.declared:
        spec = inputs.features[feature.name]
        if isinstance(spec, Ids):
            kind: Any = "words" if spec.values > 1 else "number" if spec.ordered else "category"
            chosen.append(TreeInput(feature.name, kind, width=0 if kind == "words" else 1))
        elif not spec.ordered:
            chosen.append(TreeInput(feature.name, "number", spec.width))
        elif feature.columns[0] not in ordered:
            ordered[feature.columns[0]] = len(chosen)
            chosen.append(TreeInput(feature.name, "number" if spec.width == 1 else "sum"))
        elif spec.width == 1 and chosen[ordered[feature.columns[0]]].kind == "sum":
            # Bins do not tell apart the numbers below the first and above the last edge.
            chosen[ordered[feature.columns[0]]] = TreeInput(feature.name, "number")
    of_numbers = {feature.name for feature in plan.features.declared if set(feature.columns) <= ordered.keys()}
    return tuple(each for each in chosen if each.kind != "category" or each.feature not in of_numbers)


def matrix(inputs: Sequence[TreeInput], features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Make the matrix that a forest reads.

    Args:
      inputs: Its columns.
      features: Transformed feature → tensor, [batch] or [batch, width].

    Returns:
      float32, shape [batch, sum of the inputs' columns].
    """
    return tf.concat([_columns(each, features[each.feature]) for each in inputs], axis=1)


def _columns(each: TreeInput, values: tf.Tensor) -> tf.Tensor:
    if each.kind == "number":
        return tf.reshape(tf.cast(values, tf.float32), [-1, each.width])
    if each.kind == "sum":
        return tf.reduce_sum(values, axis=1, keepdims=True)
    known = tf.constant(each.ids, tf.int64)
    if each.kind == "words":
        return tf.cast(tf.reduce_any(values[:, :, tf.newaxis] == known, axis=1), tf.float32)
    values = tf.reshape(values, [-1])
    position = tf.searchsorted(known, values)
    found = tf.gather(tf.concat([known, [-1]], axis=0), position) == values
    return tf.cast(tf.where(found, position + 1, 0), tf.float32)[:, tf.newaxis]


class Forest(tf_keras.layers.Layer):  # type: ignore[misc]
    """The logits of a forest.

    Input: the transformed features by name. Output: float32, shape [batch, outputs].

    Args:
      trees: The forest.
      options: Of tf_keras.layers.Layer.
    """

    def __init__(self, trees: Trees, **options: Any) -> None:
        super().__init__(trainable=False, dtype="float32", **options)
        self._inputs, self._outputs, self._depth = trees.inputs, len(trees.bias), trees.depth
        # Variables, so that the signatures of a SavedModel share them.
        self._bias = self._variable("bias", trees.bias)
        self._columns = self._variable("columns", trees.columns)
        # Conditions that all read one number need no sums.
        self._weights = self._variable("weights", trees.weights) if trees.columns.shape[1] > 1 else None
        self._threshold = self._variable("threshold", trees.threshold)
        self._below = self._variable("below", trees.below)
        self._value = self._variable("value", trees.value)
        self._categories = self._members = None
        if len(trees.members):
            self._categories = self._variable("categories", trees.categories)
            self._members = self._variable("members", trees.members)
        self._together = self._outputs * max(1, _TOGETHER // self._outputs)
        lacking = -len(trees.roots) % self._together
        self._groups = (len(trees.roots) + lacking) // self._together
        self._roots = self._variable("roots", np.append(trees.roots, np.full(lacking, NO_TREE, np.int32)))

    def _variable(self, name: str, values: npt.NDArray[Any]) -> tf.Variable:
        return self.add_weight(
            name, values.shape, values.dtype, initializer=lambda *_, **__: tf.constant(values), trainable=False
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Add the leaves that the rows lead to."""
        rows = matrix(self._inputs, features)
        count, width = tf.shape(rows)[0], rows.shape[1]
        flat, starts = tf.reshape(rows, [-1]), tf.range(count)[:, tf.newaxis, tf.newaxis] * width
        roots = tf.reshape(tf.convert_to_tensor(self._roots), [-1, self._together])

        def walk(group: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            root = roots[group]
            node = tf.tile(tf.maximum(root, 0)[tf.newaxis], [count, 1])
            for _ in range(self._depth):
                values = tf.gather(flat, starts + tf.gather(self._columns, node))
                if self._weights is None:
                    value = tf.squeeze(values, axis=2)
                else:
                    value = tf.reduce_sum(values * tf.gather(self._weights, node), axis=2)
                holds = value >= tf.gather(self._threshold, node)
                if self._members is not None:
                    first = tf.gather(self._categories, node)
                    member = tf.where(first >= 0, first + tf.cast(value, tf.int32), 0)
                    holds = tf.where(first >= 0, tf.gather(self._members, member), holds)
                node = tf.gather(self._below, node) + tf.cast(holds, tf.int32)
            leaves = tf.where(root == NO_TREE, 0.0, tf.gather(self._value, node))
            each = tf.reshape(leaves, [count, self._together // self._outputs, self._outputs])
            return group + 1, total + tf.reduce_sum(each, axis=1)

        # Not all groups at once: their memory would be that of all trees.
        first = tf.tile(tf.convert_to_tensor(self._bias)[tf.newaxis], [count, 1])
        _, total = tf.while_loop(
            lambda group, _: group < self._groups, walk, [tf.constant(0), first], parallel_iterations=1
        )
        return tf.ensure_shape(total, [None, self._outputs])


def forest(trees: Trees, inputs: Inputs) -> tf_keras.Model:
    """Return a forest as a network, from transformed features to logits of shape [batch, outputs]."""
    tensors = _tensors(trees, inputs)
    return tf_keras.Model(tensors, Forest(trees, name="forest")(tensors), name="forest")


def ensemble(network: tf_keras.Model, join: Join, share: float, trees: Trees, inputs: Inputs) -> tf_keras.Model:
    """Return the weighted mean of the logits of a network and a forest.

    Args:
      network: From transformed features to logits, of members if it is an ensemble itself.
      join: These logits → [batch, outputs].
      share: The weight of the network; the forest has the rest.
      trees: The forest.
      inputs: All features.
    """
    own = {tensor.name: tensor for tensor in network.inputs}
    read = _tensors(trees, inputs) | own
    of_forest = {name: read[name] for name in {each.feature for each in trees.inputs}}
    mean = tf_keras.layers.Lambda(
        lambda logits: share * join(logits[0]) + (1 - share) * logits[1], name="ensemble", dtype="float32"
    )
    return tf_keras.Model(read, mean([network.output, Forest(trees, name="forest")(of_forest)]), name="ensemble")


def _tensors(trees: Trees, inputs: Inputs) -> parts.Tensors:
    names = {each.feature for each in trees.inputs}
    return parts.input_layers(Inputs({name: spec for name, spec in inputs.features.items() if name in names}))
