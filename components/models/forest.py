"""Forests: the sum of decision trees, computed by standard TensorFlow operations, which every model server supports.

A forest reads a matrix with one float32 column per number, ordered ID or category, and one column per word that it
knows. Training and serving compute the matrix with the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.features import weighted_ids
from components.features.feature_spec import Ids
from components.features.plan import FeaturePlan
from components.models import layers as parts
from components.models.inputs import Inputs

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int32]

Join: TypeAlias = Callable[[tf.Tensor], tf.Tensor]

NO_TREE = -1
"""Root of a missing tree, if a logit has fewer trees than other logits."""
_TOGETHER = 32
"""Number of trees that are walked together: enough work per operation, and small tensors for batches of 65,536 rows."""


class TreeInput(NamedTuple):
    """The columns of the matrix that come from one transformed feature.

    Attributes:
      feature: Name of the feature.
      kind: `number` reads numbers, or an ordered ID, unchanged. `sum` adds the bins of a number, which keeps its order.
        `category` is the position of the ID in `ids`, from 1, or 0 if it is not there. `words` has one column per
        element of `ids`, which is 1 if the feature contains the ID. `weighted_words` has the weight of the ID instead.
        `means` has the row of `means` at this position.
      width: Number of columns; 0 if it follows from `ids`.
      ids: Known IDs, sorted.
      means: Means of the label for other IDs and for each of `ids`, `width` numbers each.
    """

    feature: str
    kind: Literal["number", "sum", "category", "words", "weighted_words", "means"]
    width: int = 1
    ids: tuple[int, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()

    @property
    def columns(self) -> int:
        """Number of columns of the matrix."""
        return len(self.ids) if self.kind in ("words", "weighted_words") else self.width


class Trees(NamedTuple):
    """A forest as arrays. The next node is `below` if a node's condition is false, and `below` + 1 if it is true.

    The condition on a number, or on several numbers in an oblique split, is `sum of weight * value >= threshold`. The
    condition on a category is the element of `members` at the sum of `categories` and the category. The next node of a
    leaf is the leaf itself.

    Attributes:
      inputs: Inputs of the matrix, in the order of its columns.
      bias: Logits without trees; float32, shape [outputs].
      roots: First node of the trees, or NO_TREE; int32, shape [trees]. Tree i adds to logit i % outputs, or to all
        logits if leaves have several values.
      columns: Columns of the matrix that conditions read; int32, shape [nodes, maximum columns of a condition].
      weights: Weights of these columns, 0 for columns that a condition does not read; float32, same shape.
      threshold: Thresholds of the conditions, NaN for leaves and categories; float32, shape [nodes].
      categories: Index in `members` of the first category of a condition, -1 for other nodes; int32, shape [nodes].
      below: Next node if the condition is false; int32, shape [nodes].
      value: Values of the leaves; float32, shape [nodes], or [nodes, outputs] for leaves with a value per logit.
      members: Whether the condition is true for a category; bool.
      depth: Maximum number of conditions on the way to a leaf.
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
    """Choose the features that a forest reads. The field `ids` is not set yet.

    Numbers with the same order lead to the same trees, so one number per column suffices. The IDs of a column are left
    out if the column also has a number, because they do not add information, and many categories overfit.
    """
    chosen: list[TreeInput] = []
    ordered: dict[str, int] = {}
    for feature in plan.features.declared:
        spec = inputs.features[feature.name]
        if isinstance(spec, Ids):
            kind: Any = "words" if spec.values > 1 else "number" if spec.ordered else "category"
            kind = "weighted_words" if spec.is_weighted else kind
            chosen.append(TreeInput(feature.name, kind, width=1 if spec.values == 1 else 0))
        elif not spec.ordered:
            chosen.append(TreeInput(feature.name, "number", spec.width))
        elif feature.columns[0] not in ordered:
            ordered[feature.columns[0]] = len(chosen)
            chosen.append(TreeInput(feature.name, "number" if spec.width == 1 else "sum"))
        elif spec.width == 1 and chosen[ordered[feature.columns[0]]].kind == "sum":
            # Prefer the number, because bins do not distinguish numbers below the first and above the last edge.
            chosen[ordered[feature.columns[0]]] = TreeInput(feature.name, "number")
    covered = {feature.name for feature in plan.features.declared if set(feature.columns) <= ordered.keys()}
    return tuple(
        tree_input for tree_input in chosen if tree_input.kind != "category" or tree_input.feature not in covered
    )


def matrix(inputs: Sequence[TreeInput], features: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Compute the matrix that a forest reads.

    Args:
      inputs: Inputs of the matrix, in the order of its columns.
      features: Name of a transformed feature → tensor of shape [batch] or [batch, width].

    Returns:
      The matrix, float32 of shape [batch, sum of the inputs' columns].
    """
    return tf.concat([_compute_columns(tree_input, features[tree_input.feature]) for tree_input in inputs], axis=1)


def _compute_columns(tree_input: TreeInput, values: tf.Tensor) -> tf.Tensor:
    if tree_input.kind == "number":
        return tf.reshape(tf.cast(values, tf.float32), [-1, tree_input.width])
    if tree_input.kind == "sum":
        return tf.reduce_sum(values, axis=1, keepdims=True)
    known = tf.constant(tree_input.ids, tf.int64)
    if tree_input.kind == "words":
        return tf.cast(tf.reduce_any(values[:, :, tf.newaxis] == known, axis=1), tf.float32)
    if tree_input.kind == "weighted_words":
        ids, weights = weighted_ids.unpack(values)
        columns, rows = len(tree_input.ids) + 1, tf.range(tf.shape(ids)[0])[:, tf.newaxis]
        # The first column of a row collects the weights of the other IDs.
        column = tf.reshape(_find_positions(known, tf.reshape(ids, [-1])), tf.shape(ids)) + rows * columns
        sums = tf.math.unsorted_segment_sum(weights, column, tf.shape(ids)[0] * columns)
        return tf.reshape(sums, [-1, columns])[:, 1:]
    position = _find_positions(known, tf.reshape(values, [-1]))
    if tree_input.kind == "means":
        return tf.gather(tf.constant(tree_input.means, tf.float32), position)
    return tf.cast(position, tf.float32)[:, tf.newaxis]


def _find_positions(known: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Return the positions of IDs among the known IDs, from 1, and 0 for other IDs; int32, shape [n]."""
    position = tf.searchsorted(known, ids)
    is_known = tf.gather(tf.concat([known, [-1]], axis=0), position) == ids
    return tf.where(is_known, position + 1, 0)


class MatrixLayer(tf_keras.layers.Layer):  # type: ignore[misc]
    """A layer that computes logits from the matrix of some transformed features.

    Args:
      inputs: Inputs of the matrix, in the order of its columns.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, inputs: tuple[TreeInput, ...], **options: Any) -> None:
        super().__init__(trainable=False, dtype="float32", **options)
        self._inputs = inputs

    @property
    def reads(self) -> set[str]:
        """Names of the features that it reads."""
        return {tree_input.feature for tree_input in self._inputs}


class Forest(MatrixLayer):
    """Computes the logits of a forest.

    Input: transformed features by name. Output: float32 of shape [batch, outputs].

    Args:
      trees: The forest.
      options: Options of tf_keras.layers.Layer.
    """

    def __init__(self, trees: Trees, **options: Any) -> None:
        super().__init__(trees.inputs, **options)
        self._outputs, self._depth = len(trees.bias), trees.depth
        # Store the arrays as variables, so that the signatures of a SavedModel share them.
        self._bias = self._variable("bias", trees.bias)
        self._columns = self._variable("columns", trees.columns)
        # If every condition reads a single number, sums are not necessary.
        self._weights = self._variable("weights", trees.weights) if trees.columns.shape[1] > 1 else None
        self._threshold = self._variable("threshold", _replace_subnormal(trees.threshold))
        self._below = self._variable("below", trees.below)
        self._value = self._variable("value", trees.value)
        self._categories = self._members = None
        if len(trees.members):
            self._categories = self._variable("categories", trees.categories)
            self._members = self._variable("members", trees.members)
        # The number of trees after which the trees add to the same logits again.
        self._period = self._outputs if trees.value.ndim == 1 else 1
        self._together = self._period * max(1, _TOGETHER // self._period)
        lacking = -len(trees.roots) % self._together
        self._groups = (len(trees.roots) + lacking) // self._together
        self._roots = self._variable("roots", np.append(trees.roots, np.full(lacking, NO_TREE, np.int32)))

    def _variable(self, name: str, values: npt.NDArray[Any]) -> tf.Variable:
        return self.add_weight(
            name, values.shape, values.dtype, initializer=lambda *_, **__: tf.constant(values), trainable=False
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Walk the trees with all rows, and add the values of the leaves."""
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
            leaves = tf.reshape(tf.gather(self._value, node), [count, self._together, -1])
            leaves = tf.where(root[:, tf.newaxis] == NO_TREE, 0.0, leaves)
            by_output = tf.reshape(leaves, [count, self._together // self._period, self._outputs])
            return group + 1, total + tf.reduce_sum(by_output, axis=1)

        # Walk one group at a time, because all groups at once would need memory for all trees.
        first = tf.tile(tf.convert_to_tensor(self._bias)[tf.newaxis], [count, 1])
        _, total = tf.while_loop(
            lambda group, _: group < self._groups, walk, [tf.constant(0), first], parallel_iterations=1
        )
        return tf.ensure_shape(total, [None, self._outputs])


def _replace_subnormal(thresholds: Floats) -> Floats:
    """Replace subnormal thresholds, which TensorFlow compares as 0. YDF's quantile between 0 and 1 is such a number."""
    least: np.float32 = np.finfo(np.float32).tiny
    is_subnormal = np.abs(thresholds) < least
    return np.where(is_subnormal, np.where(thresholds > 0, least, np.float32(0)), thresholds)


def forest(trees: Trees, inputs: Inputs) -> tf_keras.Model:
    """Build a network from transformed features to the logits of a forest, shape [batch, outputs]."""
    layer = Forest(trees, name="forest")
    tensors = _tensors([layer], inputs)
    return tf_keras.Model(tensors, layer(tensors), name="forest")


def ensemble(
    network: tf_keras.Model | None,
    join: Join,
    others: Sequence[MatrixLayer],
    weights: Sequence[float],
    inputs: Inputs,
) -> tf_keras.Model:
    """Build a network that computes the weighted mean of the logits of a network and of other models.

    Args:
      network: Network from transformed features to logits, which may have members; None if it has no weight.
      join: Function from the network's logits to logits of shape [batch, outputs].
      others: Layers that compute logits of the same shape.
      weights: Weights of the network and of the others.
      inputs: All features.
    """
    # A member without weight is not computed.
    weight_of_network, *weights_of_others = weights
    kept = [(weight, layer) for weight, layer in zip(weights_of_others, others, strict=True) if weight]
    tensors = _tensors([layer for _, layer in kept], inputs)
    kept_weights, logits, joins = [weight for weight, _ in kept], [], [tf.identity for _ in kept]
    if network is not None and weight_of_network:
        tensors |= {tensor.name: tensor for tensor in network.inputs}
        kept_weights, logits, joins = [weight_of_network, *kept_weights], [network.output], [join, *joins]
    logits += [layer({name: tensors[name] for name in layer.reads}) for _, layer in kept]

    def compute_mean(logits: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.add_n([weight * join(part) for weight, join, part in zip(kept_weights, joins, logits, strict=True)])

    mean = tf_keras.layers.Lambda(compute_mean, name="ensemble", dtype="float32")
    return tf_keras.Model(tensors, mean(logits), name="ensemble")


def _tensors(layers: Sequence[MatrixLayer], inputs: Inputs) -> parts.Tensors:
    names = set().union(*(layer.reads for layer in layers))
    return parts.input_layers(Inputs({name: spec for name, spec in inputs.features.items() if name in names}))
