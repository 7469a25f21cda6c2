"""Trains forests: gradient-boosted trees of YDF (Guillame-Bert et al. 2023, Yggdrasil Decision Forests).

The rows are in the memory of this process, and all its cores build trees. The number of trees is the one with the
lowest loss on rows that are held out.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import ydf

from components.base.errors import InputError
from components.models.config import ModelConfig
from components.models.forest import NO_TREE, Floats, Forest, TreeInput, Trees, matrix
from components.trainer import input_pipeline
from components.trainer.input_pipeline import Batch
from components.trainer.prediction_head import PredictionHead
from components.trainer.validation_part import Mask

_DEPTHS = (4, 6, 8)
"""Depths in question, if the config has none."""
_COMPARED = 50_000
"""Rows on which depths and partitions are compared."""
_EXACT = 20_000
"""Rows up to which the threshold of a condition may be any value; with more rows it is a quantile, for the time."""
_PATIENCE = 50
"""Trees without a lower loss after which no more are built."""
_SUBSAMPLE, _COLUMNS = 0.8, 0.5
"""The shares of the rows that a tree is built from, and of the columns that a condition is chosen from."""
_CATEGORIES, _LEAST_ROWS = 2000, 5
"""The most frequent ids of a feature that are categories, if at least so many rows have them; as YDF's defaults."""
_WORDS = 64
"""Ids of a feature with several in each row that are read: those that say most about the label."""
_MEMORY = 0.25
"""The share of the machine's memory that the rows may take; the matrix and YDF hold them two more times."""
_ABSENT = -16.0
"""The logit of a class that no row has."""
_OBLIQUE = {
    "split_axis": "SPARSE_OBLIQUE",
    "sparse_oblique_normalization": "MIN_MAX",
    "sparse_oblique_num_projections_exponent": 1.0,
    "sparse_oblique_max_num_features": 4,
}
"""At most four numbers in a condition: the time of a prediction grows with them."""
_WEIGHT = "weight"
_NO_COLUMN = -1


class Rows(NamedTuple):
    """Rows to train on.

    Attributes:
      features: transformed feature → [rows] or [rows, width].
      label: [rows], as the prediction head takes it.
      weight: of the rows, [rows]; None: all count the same.
    """

    features: dict[str, npt.NDArray[Any]]
    label: npt.NDArray[Any]
    weight: npt.NDArray[np.float32] | None = None

    def where(self, mask: Mask) -> Rows:
        """Return some of the rows."""
        features = {name: each[mask] for name, each in self.features.items()}
        return Rows(features, self.label[mask], None if self.weight is None else self.weight[mask])

    def sample(self, count: int, seed: int) -> Rows:
        """Return these rows, or `count` of them at random if there are more."""
        if len(self.label) <= count:
            return self
        chosen = np.random.default_rng(seed).choice(len(self.label), count, replace=False)
        weights = None if self.weight is None else self.weight[chosen]
        return Rows({name: each[chosen] for name, each in self.features.items()}, self.label[chosen], weights)


def read(batches: Iterable[Batch]) -> Rows:
    """Read rows into memory.

    Raises:
      InputError: they do not fit.
    """
    features: dict[str, list[npt.NDArray[Any]]] = {}
    labels, weights, size = [], [], 0
    most = _MEMORY * input_pipeline.machine_memory()
    for columns, label, *weight in batches:
        for name, each in columns.items():
            features.setdefault(name, []).append(each.numpy())
            size += features[name][-1].nbytes
        labels.append(label.numpy()[:, 0])
        weights += [each.numpy() for each in weight]
        if size > most:
            raise InputError(
                f"model.kind: a forest is trained on rows in memory; expected at most {most / 2**30:.1f} GiB, which is "
                f"{_MEMORY:.0%} of this machine's, received more",
                "choose a network, which reads its rows from the files; or a machine with more memory, or fewer rows",
            )
    columns = {name: np.concatenate(each) for name, each in features.items()}
    return Rows(columns, np.concatenate(labels), np.concatenate(weights) if weights else None)


class Fold(NamedTuple):
    """Rows to train on, and rows held out; `mask` marks these among all rows."""

    rows: Rows
    held_out: Rows
    mask: Mask


class FittedForest(NamedTuple):
    """The forest of one fold.

    Attributes:
      trees: their number for each logit.
      loss: the mean loss of the rows held out.
      logits: of these, float32 [rows, outputs].
    """

    trees: int
    loss: float
    logits: Floats


class Shape(NamedTuple):
    """What is chosen for a forest.

    Attributes:
      depth: of its trees, at most.
      trees: their number for each logit, at most.
      partition: how a condition divides categories, as YDF calls it: CART, the best partition by their mean labels; or
        RANDOM, the best of some random ones, which overfits less where there are many categories.
      oblique: whether a condition may compare a sum of several numbers (Tomita et al. 2020, Sparse Projection Oblique
        Randomer Forests).
    """

    depth: int
    trees: int
    partition: Literal["CART", "RANDOM"] = "CART"
    oblique: bool = False


class SelectedForest(NamedTuple):
    """The shape of a forest, and what it predicts for rows that it is not trained on.

    Attributes:
      shape: with the number of trees of the lowest loss; with folds, the mean over them.
      logits: of the validation part, or of all rows by the fold without each, float32 [rows, outputs].
      loss: the mean loss of these.
    """

    shape: Shape
    logits: Floats
    loss: float


@dataclass(frozen=True)
class ForestLearner:
    """Trains forests.

    Attributes:
      config: bounds of the shape, and the shrinkage.
      head: the task's loss and outputs.
      inputs: the features that a forest may read, see `tree_inputs`.
      seed: of the choice of rows and columns for each tree.
    """

    config: ModelConfig
    head: PredictionHead
    inputs: Sequence[TreeInput]
    seed: int

    def select(self, rows: Rows, held_out: Sequence[Mask]) -> SelectedForest:
        """Chooses the shape by the loss of rows held out: depth, partition, oblique splits, and the number of trees.

        Depths and partitions are compared on at most 50,000 of the rows. Splits are oblique only if the loss is lower
        by more than a standard error: without a sum of numbers that matters, they overfit.

        Args:
          rows: all rows.
          held_out: marks the validation part, or each fold.
        """
        folds = [Fold(rows.where(~mask), rows.where(mask), mask) for mask in held_out]
        samples = [fold._replace(rows=fold.rows.sample(_COMPARED, self.seed)) for fold in folds]
        depths = _DEPTHS if self.config.depth is None else (self.config.depth,)
        best = min(self._selected([Shape(depth, self.config.trees) for depth in depths], samples), key=_loss)
        if any(each.kind == "category" for each in self.inputs):
            random = Shape(best.shape.depth, self.config.trees, "RANDOM")
            best = min(best, *self._selected([random], samples), key=_loss)
        if self._can_be_oblique(samples[0].rows):
            (other,) = self._selected([best.shape._replace(trees=self.config.trees, oblique=True)], samples)
            if self._is_lower(other, best, rows.where(np.any(held_out, axis=0))):
                best = other
        if len(samples[0].rows.label) < len(folds[0].rows.label):
            (best,) = self._selected([best.shape._replace(trees=self.config.trees)], folds)
        if len(folds) > 1:
            # The number of trees with the lowest loss of a small fold says too much about its own rows.
            (best,) = self._selected([best.shape], folds, stop_early=False)
        return best

    def _selected(
        self, shapes: Sequence[Shape], folds: Sequence[Fold], stop_early: bool = True
    ) -> list[SelectedForest]:
        """Trains a forest of each shape for each fold, side by side; YDF does not hold the interpreter's lock."""

        def fitted(each: tuple[Shape, Fold]) -> FittedForest:
            return self._fitted(*each, stop_early)

        cores = len(os.sched_getaffinity(0)) if _threads(folds[0].rows) == 1 else 1
        with ThreadPoolExecutor(cores) as pool:
            trained = list(pool.map(fitted, itertools.product(shapes, folds)))
        weights = [self.head.weight_of(fold.held_out.label, fold.held_out.weight) for fold in folds]
        judged = np.any([fold.mask for fold in folds], axis=0)
        found = []
        for number, shape in enumerate(shapes):
            own = trained[number * len(folds) : (number + 1) * len(folds)]
            logits = np.empty((len(judged), self.head.outputs), np.float32)
            for fold, one in zip(folds, own, strict=True):
                logits[fold.mask] = one.logits
            count, loss = (np.average(each, weights=weights) for each in zip(*(one[:2] for one in own), strict=True))
            logging.info(
                "%.0f trees of depth %d, %s%s: loss %.5f on the validation part",
                count,
                shape.depth,
                shape.partition,
                ", oblique" if shape.oblique else "",
                loss,
            )
            found.append(SelectedForest(shape._replace(trees=max(1, round(count))), logits[judged], float(loss)))
        return found

    def _can_be_oblique(self, rows: Rows) -> bool:
        """Whether splits can be oblique: YDF reads the exact values of numbers for them, which takes time."""
        numbers = sum(each.columns for each in self.inputs if each.kind in ("number", "sum"))
        return numbers > 1 and len(rows.label) <= _EXACT

    def _fitted(self, shape: Shape, fold: Fold, stop_early: bool) -> FittedForest:
        """Trains the forest of one fold."""
        inputs = [self._with_ids(each, fold.rows) for each in self.inputs]
        trees = self._trees(shape, inputs, fold.rows, fold.held_out if stop_early else None)
        logits = predict(trees, fold.held_out.features)
        return FittedForest(len(trees.roots) // self.head.outputs, self.loss(fold.held_out, logits), logits)

    def refit(self, selected: SelectedForest, rows: Rows) -> Trees:
        """Trains a forest of the same shape on all rows."""
        return self._trees(selected.shape, [self._with_ids(each, rows) for each in self.inputs], rows)

    def loss(self, rows: Rows, logits: Floats) -> float:
        """Return the mean loss of logits [rows, outputs], weighted if the rows have weights."""
        return self.head.mean(self._losses(rows, logits), self.head.weight_of(rows.label, rows.weight))

    def _is_lower(self, one: SelectedForest, other: SelectedForest, rows: Rows) -> bool:
        """Whether the loss of the first is lower by more than a standard error of the paired difference."""
        differences = self._losses(rows, other.logits) - self._losses(rows, one.logits)
        return bool(differences.mean() > differences.std() / np.sqrt(len(differences)))

    def _losses(self, rows: Rows, logits: Floats) -> Floats:
        losses: Floats = self.head.losses(tf.constant(rows.label), tf.constant(logits), rows.weight).numpy()
        return losses

    def _with_ids(self, each: TreeInput, rows: Rows) -> TreeInput:
        values = rows.features[each.feature]
        if each.kind == "category":
            ids, counts = np.unique(values, return_counts=True)
            often = np.argsort(-counts, kind="stable")[:_CATEGORIES]
            return each._replace(ids=tuple(np.sort(ids[often[counts[often] >= _LEAST_ROWS]]).tolist()))
        if each.kind == "words":
            return each._replace(ids=tuple(np.sort(self._words(values, rows.label)).tolist()))
        return each

    def _words(self, values: npt.NDArray[np.int64], label: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Chooses the ids whose rows differ most from all rows in the mean label, or in the share of a class."""
        # A row counts once for an id; id 0 is padding.
        pairs = np.unique(values * len(values) + np.arange(len(values))[:, np.newaxis])
        pairs = pairs[pairs >= len(values)]
        ids, number, counts = np.unique(pairs // len(values), return_inverse=True, return_counts=True)
        row = pairs % len(values)
        scores = np.zeros(len(ids))
        for one in [label] if self.head.scale else [label == value for value in range(max(2, self.head.outputs))]:
            sums = np.bincount(number, (one - one.mean())[row], len(ids))
            scores = np.maximum(scores, np.abs(sums) / np.sqrt(counts))
        best: npt.NDArray[np.int64] = ids[np.argsort(-scores, kind="stable")][:_WORDS]
        return best

    def _trees(self, shape: Shape, inputs: Sequence[TreeInput], rows: Rows, validation: Rows | None = None) -> Trees:
        """Trains one forest; without validation rows, exactly `shape.trees` for each logit."""
        regression = self.head.scale is not None
        features = [
            ydf.Feature(str(number), ydf.Semantic.CATEGORICAL if each else ydf.Semantic.NUMERICAL)
            for number, each in enumerate(_categories(inputs))
        ]
        learner = ydf.GradientBoostedTreesLearner(
            label="label",
            weights=_WEIGHT if self.head.weights or rows.weight is not None else None,
            task=ydf.Task.REGRESSION if regression else ydf.Task.CLASSIFICATION,
            loss=_loss_name(self.config, self.head),
            focal_loss_gamma=self.config.focal_gamma,
            features=features,
            # All rows may be more than those that the shape was chosen on.
            discretize_numerical_columns=len(rows.label) > _EXACT and not shape.oblique,
            min_vocab_frequency=1,
            max_vocab_count=-1,
            num_trees=shape.trees,
            max_depth=shape.depth,
            shrinkage=self.config.shrinkage,
            categorical_algorithm=shape.partition,
            **(_OBLIQUE if shape.oblique else {}),
            subsample=_SUBSAMPLE,
            num_candidate_attributes_ratio=_COLUMNS,
            # With 0, YDF does not stop early on a dataset that it is given, either.
            validation_ratio=0.1 if validation else 0.0,
            early_stopping="LOSS_INCREASE" if validation else "NONE",
            early_stopping_num_trees_look_ahead=_PATIENCE,
            random_seed=self.seed,
            num_threads=_threads(rows),
        )
        datasets = [self._dataset(inputs, each) for each in (rows, validation) if each]
        return _trees(learner.train(*datasets, verbose=0), tuple(inputs), self.head.outputs)

    def _dataset(self, inputs: Sequence[TreeInput], rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the matrix, the label and the weights, as YDF takes them."""
        table = matrix(inputs, {name: tf.constant(each) for name, each in rows.features.items()}).numpy()
        columns = {
            str(number): table[:, number].astype(np.int64) if each else table[:, number]
            for number, each in enumerate(_categories(inputs))
        }
        label = rows.label
        if self.head.scale:
            shift, unit = self.head.scale
            label = ((label - shift) / unit).astype(np.float32)
        if self.head.weights or rows.weight is not None:
            of_class = 1 if self.head.weights is None else self.head.weights(tf.constant(rows.label)).numpy()
            own = 1 if rows.weight is None else rows.weight / self.head.mean_weight
            columns[_WEIGHT] = np.asarray(of_class * own, np.float32)
        return {**columns, "label": label}


def _loss_name(config: ModelConfig, head: PredictionHead) -> str:
    """YDF's name of the loss."""
    if config.loss == "poisson":
        return "POISSON"
    if config.loss == "focal":
        return "BINARY_FOCAL_LOSS"
    # If the rows have two classes of several, the default is the loss of two.
    return "MULTINOMIAL_LOG_LIKELIHOOD" if head.outputs > 1 else "DEFAULT"


def _threads(rows: Rows) -> int:
    """Return the number of threads for one forest.

    YDF's threads wait for each other at every condition: without many rows, one thread is faster. It draws other random
    numbers than several do, so whether it is one depends on the rows and not on the cores.
    """
    return 1 if len(rows.label) <= _COMPARED else max(2, len(os.sched_getaffinity(0)))


def _loss(selected: SelectedForest) -> float:
    return selected.loss


def predict(trees: Trees, features: Mapping[str, npt.NDArray[Any]]) -> Floats:
    """Return the logits of a forest, float32 [rows, outputs]."""
    # Not as a graph: it would be used once, and to trace it takes longer.
    logits: Floats = Forest(trees)({name: tf.constant(each) for name, each in features.items()}).numpy()
    return logits


def _categories(inputs: Sequence[TreeInput]) -> list[int]:
    """For each column of the matrix the number of its categories, with that of unknown ids; 0 for a number."""
    return [len(each.ids) + 1 if each.kind == "category" else 0 for each in inputs for _ in range(each.columns)]


def _trees(model: Any, inputs: tuple[TreeInput, ...], outputs: int) -> Trees:
    """Convert YDF's model."""
    classes = [int(each) for each in model.label_classes()] if outputs > 1 else [0]
    bias = np.full(outputs, _ABSENT, np.float32)
    bias[classes] = model.initial_predictions()
    nodes = _Nodes(model.data_spec().columns, _categories(inputs))
    # YDF has no trees for a class that no row has.
    roots = np.full((model.num_trees() // len(classes), outputs), NO_TREE, np.int32)
    for number, tree in enumerate(model.iter_trees()):
        roots[number // len(classes), classes[number % len(classes)]] = nodes.add_tree(tree.root)
    return nodes.trees(inputs, bias, roots.reshape(-1))


class _Nodes:
    """The nodes of YDF's trees, as arrays.

    Args:
      columns: YDF's; their names are the numbers of the matrix' columns.
      categories: see `_categories`.
    """

    def __init__(self, columns: Sequence[Any], categories: Sequence[int]) -> None:
        self._columns = [int(each.name) if each.name.isdigit() else _NO_COLUMN for each in columns]
        self._boundaries = [each.discretized_numerical.boundaries for each in columns]
        # For each category its number in YDF; 0 for one that no row has.
        self._numbers: list[list[int]] = []
        for each, column in zip(columns, self._columns, strict=True):
            known = {name: item.index for name, item in each.categorical.items.items()}
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
                    self._nodes[number] = (*self._condition(node.condition), next_, 0.0)
                    below += [(node.neg_child, next_), (node.pos_child, next_ + 1)]
            depth, level = depth + bool(below), below
        self._depth = max(self._depth, depth)
        return first

    def trees(self, inputs: tuple[TreeInput, ...], bias: Floats, roots: npt.NDArray[np.int32]) -> Trees:
        """Return all trees."""
        columns, weights, threshold, categories, below, value = (
            zip(*self._nodes, strict=True) if self._nodes else [()] * 6
        )
        return Trees(
            inputs,
            bias,
            roots,
            _padded(columns, np.int32),
            _padded(weights, np.float32),
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

    def _condition(self, condition: Any) -> tuple[Sequence[int], Sequence[float], float, int]:
        """Columns, weights, threshold and first category of a condition; see Trees."""
        if isinstance(condition, ydf.tree.NumericalSparseObliqueCondition):
            return [self._columns[each] for each in condition.attributes], condition.weights, condition.threshold, -1
        column = [self._columns[condition.attribute]]
        if isinstance(condition, ydf.tree.NumericalHigherThanCondition):
            return column, [1.0], condition.threshold, -1
        if isinstance(condition, ydf.tree.DiscretizedNumericalHigherThanCondition):
            return column, [1.0], self._boundaries[condition.attribute][condition.threshold_idx - 1], -1
        first, members = len(self._members), set(condition.mask)
        self._members += [number in members for number in self._numbers[condition.attribute]]
        return column, [1.0], np.nan, first


def _padded(rows: Sequence[Sequence[float]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return rows of different lengths as an array [rows, greatest length, at least 1], filled up with zeros."""
    padded = np.zeros((len(rows), max([1, *map(len, rows)])), dtype)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return padded
