"""Conversion of a forest of YDF to arrays, which TensorFlow evaluates without YDF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ydf

from components.models.forest import NO_TREE, Floats, TreeInput, Trees

_ABSENT = -16.0
"""The logit of a class without rows."""
_NO_COLUMN = -1


def count_categories(inputs: Sequence[TreeInput]) -> list[int]:
    """Return the number of categories per column of the matrix, including unknown IDs; 0 for a number."""
    return [
        len(tree_input.ids) + 1 if tree_input.kind == "category" else 0
        for tree_input in inputs
        for _ in range(tree_input.columns)
    ]


def convert_trees(models: Sequence[Any], inputs: tuple[TreeInput, ...], outputs: int) -> Trees:
    """Convert YDF models of the same rows to one forest, which computes the mean of their logits."""
    classes = _list_classes(models[0], outputs)
    bias = np.full(outputs, _ABSENT, np.float32)
    bias[classes] = models[0].initial_predictions()
    nodes = _Nodes(models[0].data_spec().columns, count_categories(inputs))
    roots = []
    for model in models:
        of_model = np.full((model.num_trees() // len(classes), outputs), NO_TREE, np.int32)
        for number, tree in enumerate(model.iter_trees()):
            of_model[number // len(classes), classes[number % len(classes)]] = nodes.add_tree(tree.root)
        roots.append(of_model.reshape(-1))
    trees = nodes.create_trees(inputs, bias, np.concatenate(roots))
    return trees._replace(value=trees.value / np.float32(len(models)))


def predict_logits(model: Any, dataset: Mapping[str, npt.NDArray[Any]], outputs: int) -> Floats:
    """Return the logits of a YDF model that was trained without its link function, float32 [rows, outputs]."""
    logits = np.full((len(dataset["label"]), outputs), _ABSENT, np.float32)
    logits[:, _list_classes(model, outputs)] = np.reshape(model.predict(dataset), (len(logits), -1))
    return logits


def _list_classes(model: Any, outputs: int) -> list[int]:
    """Return the classes that YDF builds trees for, in its order: classes without rows lack trees."""
    return [int(value) for value in model.label_classes()] if outputs > 1 else [0]


class _Nodes:
    """The nodes of YDF's trees, as arrays.

    Args:
      columns: YDF's columns, named after their numbers in the matrix.
      categories: see `count_categories`.
    """

    def __init__(self, columns: Sequence[Any], categories: Sequence[int]) -> None:
        self._columns = [int(column.name) if column.name.isdigit() else _NO_COLUMN for column in columns]
        self._boundaries = [column.discretized_numerical.boundaries for column in columns]
        # YDF's numbers of the categories; 0 for a category without rows.
        self._numbers: list[list[int]] = []
        for described, column in zip(columns, self._columns, strict=True):
            known = {name: item.index for name, item in described.categorical.items.items()}
            count = 0 if column == _NO_COLUMN else categories[column]
            self._numbers.append([known.get(str(category), 0) for category in range(count)])
        self._nodes: list[tuple[Sequence[int], Sequence[float], float, int, int, float]] = []
        self._members: list[bool] = []
        self._depth = 0

    def add_tree(self, root: Any) -> int:
        """Add a tree; return the number of its first node."""
        first, depth, level = len(self._nodes), 0, [(root, self._reserve(1))]
        while level:
            below = []
            for node, number in level:
                if isinstance(node, ydf.tree.Leaf):
                    self._nodes[number] = ((), (), np.nan, -1, number, node.value.value)
                else:
                    next_ = self._reserve(2)
                    self._nodes[number] = (*self._convert_condition(node.condition), next_, 0.0)
                    below += [(node.neg_child, next_), (node.pos_child, next_ + 1)]
            depth, level = depth + bool(below), below
        self._depth = max(self._depth, depth)
        return first

    def create_trees(self, inputs: tuple[TreeInput, ...], bias: Floats, roots: npt.NDArray[np.int32]) -> Trees:
        """Return all trees."""
        columns, weights, threshold, categories, below, value = (
            zip(*self._nodes, strict=True) if self._nodes else [()] * 6
        )
        return Trees(
            inputs,
            bias,
            roots,
            _pad(columns, np.int32),
            _pad(weights, np.float32),
            np.array(threshold, np.float32),
            np.array(categories, np.int32),
            np.array(below, np.int32),
            np.array(value, np.float32),
            np.array(self._members, bool),
            self._depth,
        )

    def _reserve(self, count: int) -> int:
        self._nodes += [((), (), np.nan, -1, 0, 0.0)] * count
        return len(self._nodes) - count

    def _convert_condition(self, condition: Any) -> tuple[Sequence[int], Sequence[float], float, int]:
        """Return columns, weights, threshold and first category of a condition; see Trees."""
        if isinstance(condition, ydf.tree.NumericalSparseObliqueCondition):
            return (
                [self._columns[attribute] for attribute in condition.attributes],
                condition.weights,
                condition.threshold,
                -1,
            )
        column = [self._columns[condition.attribute]]
        if isinstance(condition, ydf.tree.NumericalHigherThanCondition):
            return column, [1.0], condition.threshold, -1
        if isinstance(condition, ydf.tree.DiscretizedNumericalHigherThanCondition):
            return column, [1.0], self._boundaries[condition.attribute][condition.threshold_idx - 1], -1
        first, members = len(self._members), set(condition.mask)
        self._members += [number in members for number in self._numbers[condition.attribute]]
        return column, [1.0], np.nan, first


def _pad(rows: Sequence[Sequence[float]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Pad rows of different lengths with zeros to an array [rows, maximum length, at least 1]."""
    padded = np.zeros((len(rows), max([1, *map(len, rows)])), dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
