"""Trees of other libraries as the arrays of a Forest, which TensorFlow evaluates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from components.models.forest import NO_TREE, Floats, Ints, TreeInput, Trees

_LEAF = -1


@dataclass(frozen=True)
class BinaryTree:
    """A decision tree as arrays. The first node is the root. A row goes left if its value is below the threshold.

    Attributes:
      left: Next node if the condition on the threshold is false; -1 for a leaf; int [nodes].
      right: Next node if it is true; int [nodes].
      column: Column that a node reads; int [nodes].
      threshold: A row goes right if its value is at least this; float32 [nodes].
      value: Values of the leaves; float64 [nodes], or [nodes, outputs].
      left_ids: For conditions on categories: node → IDs that go left.
    """

    left: npt.NDArray[Any]
    right: npt.NDArray[Any]
    column: npt.NDArray[Any]
    threshold: Floats
    value: npt.NDArray[Any]
    left_ids: Mapping[int, Sequence[int]] = field(default_factory=dict)


def next_above(thresholds: npt.NDArray[np.float64]) -> Floats:
    """Return the smallest float32 above each threshold, so that `x <= threshold` is `x < result` for a float32 x."""
    rounded = thresholds.astype(np.float32)
    below = np.where(rounded > thresholds, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    above: Floats = np.nextafter(below, np.float32(np.inf))
    return above


def create_trees(
    trees: Sequence[BinaryTree], outputs: Sequence[int], inputs: tuple[TreeInput, ...], bias: npt.ArrayLike
) -> Trees:
    """Create the arrays of a forest.

    Args:
      trees: The trees.
      outputs: Number of the logit that a tree adds to; ignored for trees with a value per logit.
      inputs: Inputs of the matrix that the trees read.
      bias: Logits without trees, [logits].
    """
    logits = np.asarray(bias, np.float32).reshape(-1)
    inputs, known_ids = _find_known_ids(trees, inputs)
    nodes = [_number_children(tree) for tree in trees]
    starts = np.cumsum([0, *(len(tree.left) for tree in trees)]).astype(np.int32)
    has_vectors = any(tree.value.ndim == 2 for tree in trees)
    if has_vectors:
        roots: Ints = starts[:-1]
    else:
        by_output = [starts[:-1][np.equal(outputs, number)] for number in range(len(logits))]
        roots = np.full((max(map(len, by_output)), len(logits)), NO_TREE, np.int32)
        for number, chosen in enumerate(by_output):
            roots[: len(chosen), number] = chosen
    categories = np.full(starts[-1], -1, np.int32)
    members: list[bool] = []
    for start, tree, (order, _, _) in zip(starts, trees, nodes, strict=False):
        position = {int(node): number for number, node in enumerate(order)}
        for node, left_ids in tree.left_ids.items():
            categories[start + position[node]] = len(members)
            # The first member stands for unknown IDs, which go right.
            members += [True, *(number not in set(left_ids) for number in known_ids[int(tree.column[node])])]

    def join(values: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.concatenate([part[order] for part, (order, _, _) in zip(values, nodes, strict=True)]).astype(dtype)

    is_leaf = join([tree.left == _LEAF for tree in trees], bool)
    threshold = join([tree.threshold for tree in trees], np.float32)
    threshold[is_leaf | (categories >= 0)] = np.nan
    column = join([tree.column for tree in trees], np.int32)
    column[is_leaf] = 0
    return Trees(
        inputs,
        logits,
        roots.reshape(-1),
        column[:, np.newaxis],
        np.ones((len(column), 1), np.float32),
        threshold,
        categories,
        np.concatenate([below + start for (_, below, _), start in zip(nodes, starts, strict=False)]).astype(np.int32),
        join([tree.value for tree in trees], np.float32),
        np.array(members, bool),
        max(depth for _, _, depth in nodes),
    )


def _number_children(tree: BinaryTree) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
    """Renumber the nodes by depth, so that the children of a node are next to each other.

    Returns:
      The nodes in their new order, int [nodes]; for each node the new number of its left child, or for a leaf its new
      number, int [nodes]; and the maximum number of conditions on the way to a leaf.
    """
    order, below, level, first, depth = [], [], np.zeros(1, np.int64), 0, 0
    while len(level):
        is_inner = tree.left[level] != _LEAF
        children = np.stack([tree.left[level[is_inner]], tree.right[level[is_inner]]], axis=1).reshape(-1)
        next_numbers = np.arange(first, first + len(level))
        next_numbers[is_inner] = first + len(level) + 2 * np.arange(is_inner.sum())
        order.append(level)
        below.append(next_numbers)
        first += len(level)
        depth += bool(len(children))
        level = children
    return np.concatenate(order), np.concatenate(below), depth


def _find_known_ids(
    trees: Sequence[BinaryTree], inputs: tuple[TreeInput, ...]
) -> tuple[tuple[TreeInput, ...], dict[int, tuple[int, ...]]]:
    """Return the inputs, where those with conditions on categories become categories; and column → its known IDs."""
    ids: dict[int, set[int]] = {}
    for tree in trees:
        for node, left_ids in tree.left_ids.items():
            ids.setdefault(int(tree.column[node]), set()).update(left_ids)
    known = {column: tuple(sorted(numbers)) for column, numbers in ids.items()}
    changed, column = [], 0
    for tree_input in inputs:
        is_category = column in known and tree_input.columns == 1
        changed.append(tree_input._replace(kind="category", ids=known[column]) if is_category else tree_input)
        column += tree_input.columns
    return tuple(changed), known
