"""Training of forests: gradient-boosted trees of YDF (Guillame-Bert et al. 2023, Yggdrasil Decision Forests).

The rows are in the memory of this process, and all its cores build trees. The number of trees is chosen by the loss on
rows that are held out.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import ydf

from components.features import weighted_ids
from components.models.config import ModelConfig
from components.models.forest import Floats, Forest, TreeInput, Trees, matrix
from components.trainer.forest_conversion import convert_trees, count_categories, predict_logits
from components.trainer.label_means import choose_frequent, compute_label_means, make_targets
from components.trainer.memory_rows import Rows
from components.trainer.prediction_head import PredictionHead
from components.trainer.validation_part import FoldMasks, Mask, combine_held_out

_DEPTHS = (4, 6, 8)
"""Depths to compare if the config does not set one."""
_COMPARED = 50_000
"""Maximum number of rows on which depths and partitions are compared."""
_EXACT, _EXACT_VALUES = 20_000, 500_000
"""Maximum number of rows, and of rows times columns times logits, with exact thresholds in conditions; with more,
thresholds are quantiles, which takes a fifth of the time."""
_PATIENCE = 50
"""Number of trees without a lower loss after which a training ends."""
_SUBSAMPLE, _COLUMNS = 0.8, 0.5
"""Share of the rows that a tree is built from, and share of the columns that a condition is chosen from."""
_CATEGORIES, _LEAST_ROWS = 2000, 5
"""Maximum number of IDs of a feature that are categories, and minimum number of rows of each; YDF's defaults."""
_MANY = 50
"""Maximum number of categories of a condition. Trees read means of the label instead of more categories, which overfit
and take longer: of more than 300, YDF compares thousands of random partitions."""
_WORDS = 64
"""Maximum number of IDs that are read from a feature with several IDs per row: those that predict the label best."""
_OBLIQUE = {
    "split_axis": "SPARSE_OBLIQUE",
    "sparse_oblique_normalization": "MIN_MAX",
    "sparse_oblique_num_projections_exponent": 1.0,
    "sparse_oblique_max_num_features": 4,
}
"""At most four numbers in a condition, because the time of a prediction grows with them."""
_LEAST_SECONDS = 1.0
"""Minimum time that is left for a comparison, so that each forest gets some trees."""
_WEIGHT = "weight"


Dataset: TypeAlias = dict[str, npt.NDArray[Any]]
"""Rows as YDF takes them: the columns of the matrix by number, the label, and the weights."""


class Fold(NamedTuple):
    """Rows to train on, and rows held out.

    Attributes:
      held_out: The rows held out.
      mask: Marks these rows among all rows.
      inputs: What a forest reads, with the IDs of the rows to train on.
      dataset: The rows to train on.
      held_out_dataset: The rows held out.
    """

    held_out: Rows
    mask: Mask
    inputs: tuple[TreeInput, ...]
    dataset: Dataset
    held_out_dataset: Dataset


class FittedForest(NamedTuple):
    """The forest of one fold.

    Attributes:
      trees: Number of trees per logit.
      loss: Mean loss of the rows held out.
      logits: Logits of the rows held out, float32 [rows, outputs].
    """

    trees: int
    loss: float
    logits: Floats


class Shape(NamedTuple):
    """The hyperparameters that are selected for a forest.

    Attributes:
      depth: Maximum depth of a tree.
      trees: Maximum number of trees per logit.
      partition: YDF's name for how a condition divides categories. CART: the best partition by their mean labels;
        RANDOM: the best of some random partitions, which overfits less with many categories.
      oblique: Whether a condition may compare a sum of several numbers (Tomita et al. 2020, Sparse Projection Oblique
        Randomer Forests).
    """

    depth: int
    trees: int
    partition: Literal["CART", "RANDOM"] = "CART"
    oblique: bool = False


class SelectedForest(NamedTuple):
    """The shape of a forest, and its predictions for rows that it is not trained on.

    Attributes:
      shape: The shape, with the number of trees of the lowest loss; with folds, the mean number over the folds.
      logits: Logits of the validation part, or with folds the out-of-fold logits of all rows; float32 [rows, outputs].
      loss: Mean loss of these rows.
    """

    shape: Shape
    logits: Floats
    loss: float


@dataclass(frozen=True)
class ForestLearner:
    """Trains forests.

    Attributes:
      config: Bounds of the shape, and the shrinkage.
      head: The task's loss and outputs.
      inputs: The features that a forest may read, see `tree_inputs`.
      seed: Seed of the choice of rows and columns for each tree.
      directions: Feature of an ordered number → 1 if the logit must not decrease with it, or -1 if it must not
        increase.
      seconds: Time after which `select` compares nothing more, in seconds.
    """

    config: ModelConfig
    head: PredictionHead
    inputs: Sequence[TreeInput]
    seed: int
    directions: Mapping[str, int] = field(default_factory=dict)
    seconds: float = math.inf

    def select(self, rows: Rows, masks: Sequence[FoldMasks]) -> SelectedForest:
        """Select the shape by the loss of held-out rows: depth, partition, oblique splits and the number of trees.

        Depths and partitions are compared on at most 50,000 of the rows. Splits are oblique only if the loss is lower
        by more than a standard error, because they overfit where sums of numbers do not matter.

        Args:
          rows: All rows.
          masks: Masks of the validation part, or of every fold.
        """
        deadline = time.monotonic() + self.seconds
        folds = [self._make_fold(rows, fold_masks, _COMPARED) for fold_masks in masks]
        depths = _DEPTHS if self.config.depth is None else (self.config.depth,)
        shapes = [Shape(depth, self.config.trees) for depth in depths]
        best = min(self._train_shapes(shapes, folds, deadline), key=attrgetter("loss"))
        has_categories = any(tree_input.kind == "category" for tree_input in folds[0].inputs)
        if has_categories and time.monotonic() < deadline:
            random = Shape(best.shape.depth, self.config.trees, "RANDOM")
            best = min(best, *self._train_shapes([random], folds, deadline), key=attrgetter("loss"))
        if self._can_be_oblique(folds[0].dataset) and time.monotonic() < deadline:
            shape = best.shape._replace(trees=self.config.trees, oblique=True)
            (oblique,) = self._train_shapes([shape], folds, deadline)
            if self.is_lower(oblique.logits, best.logits, rows.where(combine_held_out(masks))):
                best = oblique
        if max(fold_masks.training.sum() for fold_masks in masks) > _COMPARED:
            folds = [self._make_fold(rows, fold_masks) for fold_masks in masks]
            (best,) = self._train_shapes([best.shape._replace(trees=self.config.trees)], folds, deadline)
        if len(folds) > 1:
            # The best tree count of a single small fold overfits that fold.
            (best,) = self._train_shapes([best.shape], folds, stop_early=False)
        return best

    def _make_fold(self, rows: Rows, masks: FoldMasks, most: int | None = None) -> Fold:
        """Return a fold, with at most `most` rows to train on, which are drawn at random."""
        training, held_out = rows.where(masks.training), rows.where(masks.held_out)
        inputs, dataset = self._prepare(training.sample(most or len(training.label), self.seed))
        return Fold(held_out, masks.held_out, inputs, dataset, self._create_dataset(inputs, held_out))

    def _train_shapes(
        self, shapes: Sequence[Shape], folds: Sequence[Fold], deadline: float = math.inf, stop_early: bool = True
    ) -> list[SelectedForest]:
        """Train a forest per shape and fold in threads, because YDF releases the interpreter's lock.

        Args:
          shapes: The shapes.
          folds: The folds.
          deadline: Time of the monotonic clock before which the selection should end. Forests that would take longer
            than an equal part of half of the remaining time get fewer trees.
          stop_early: Whether the held-out rows decide about the number of trees.
        """
        cores = _count_forests(folds[0].dataset)
        remaining = max(deadline - time.monotonic(), _LEAST_SECONDS)
        seconds = remaining / 2 * cores / (len(shapes) * len(folds))

        def fit(pair: tuple[Shape, Fold]) -> FittedForest:
            return self._fit_fold(*pair, stop_early, seconds)

        with ThreadPoolExecutor(cores) as pool:
            trained = list(pool.map(fit, itertools.product(shapes, folds)))
        weights = [self.head.weight_of(fold.held_out.label, fold.held_out.weight) for fold in folds]
        is_held_out = np.any([fold.mask for fold in folds], axis=0)
        selected = []
        for number, shape in enumerate(shapes):
            forests = trained[number * len(folds) : (number + 1) * len(folds)]
            logits = np.empty((len(is_held_out), self.head.outputs), np.float32)
            for fold, forest in zip(folds, forests, strict=True):
                logits[fold.mask] = forest.logits
            count = np.average([forest.trees for forest in forests], weights=weights)
            loss = np.average([forest.loss for forest in forests], weights=weights)
            logging.info(
                "%.0f trees of depth %d, %s%s: loss %.5f on the validation part",
                count,
                shape.depth,
                shape.partition,
                ", oblique" if shape.oblique else "",
                loss,
            )
            selected.append(
                SelectedForest(shape._replace(trees=max(1, round(count))), logits[is_held_out], float(loss))
            )
        return selected

    def _can_be_oblique(self, dataset: Dataset) -> bool:
        """Whether oblique splits can be tried: YDF reads exact numbers for them, which takes time.

        A sum of several numbers does not have a direction.
        """
        numbers = sum(tree_input.columns for tree_input in self.inputs if tree_input.kind in ("number", "sum"))
        return numbers > 1 and self._is_exact(dataset) and not self.directions

    def _is_exact(self, dataset: Dataset) -> bool:
        """Whether thresholds in conditions are exact."""
        values = len(dataset["label"]) * len(dataset) * self.head.outputs
        return len(dataset["label"]) <= _EXACT and values <= _EXACT_VALUES

    def _fit_fold(self, shape: Shape, fold: Fold, stop_early: bool, seconds: float) -> FittedForest:
        """Train the forest of one fold."""
        validation = fold.held_out_dataset if stop_early else None
        model = self._train_model(shape, fold.inputs, fold.dataset, validation, seconds)
        if shape.oblique:
            logits = predict(convert_trees([model], fold.inputs, self.head.outputs), fold.held_out.features)
        else:
            # Conversion and prediction of the trees would take longer than their training.
            logits = predict_logits(model, fold.held_out_dataset, self.head.outputs)
        trees = model.num_trees() // model.num_trees_per_iteration()
        return FittedForest(trees, self.loss(fold.held_out, logits), logits)

    def refit(self, selected: SelectedForest, rows: Rows, deadline: float = math.inf) -> Trees:
        """Train forests of the same shape on all rows, and return their mean.

        Args:
          selected: The shape.
          rows: The rows.
          deadline: Time of the monotonic clock. Only one forest is trained instead of `model.forests` if the others
            would not end before it.
        """
        inputs, dataset = self._prepare(rows)

        def train(seed: int) -> Any:
            return self._train_model(selected.shape, inputs, dataset, seed=seed)

        seeds = range(self.seed, self.seed + self.config.forests)
        models, threads = [], _count_forests(dataset)
        if math.isfinite(deadline):
            started = time.monotonic()
            models, seeds = [train(self.seed)], seeds[1:]
            seconds = (time.monotonic() - started) * math.ceil(len(seeds) / threads)
            seeds = seeds if time.monotonic() + seconds <= deadline else seeds[:0]
        with ThreadPoolExecutor(threads) as pool:
            models += pool.map(train, seeds)
        return convert_trees(models, inputs, self.head.outputs)

    def loss(self, rows: Rows, logits: Floats) -> float:
        """Compute the mean loss of logits [rows, outputs], weighted if the rows have weights."""
        return self.head.mean(self._compute_losses(rows, logits), self.head.weight_of(rows.label, rows.weight))

    def is_lower(self, first: Floats, second: Floats, rows: Rows) -> bool:
        """Whether the loss of the first logits is lower by more than a standard error of the paired difference."""
        differences = self._compute_losses(rows, second) - self._compute_losses(rows, first)
        return bool(differences.mean() > differences.std() / np.sqrt(len(differences)))

    def _compute_losses(self, rows: Rows, logits: Floats) -> Floats:
        losses: Floats = self.head.losses(tf.constant(rows.label), tf.constant(logits), rows.weight).numpy()
        return losses

    def _prepare(self, rows: Rows) -> tuple[tuple[TreeInput, ...], Dataset]:
        """Return the inputs of a forest, and the dataset to train it on, with means that exclude a row's fold."""
        inputs, out_of_fold = [], {}
        targets, weights = make_targets(self._scale(rows.label), self.head.outputs), self.weights_of(rows)
        for tree_input in self.choose_ids(rows):
            ids = rows.features[tree_input.feature].reshape(-1)
            if tree_input.kind == "category" and len(np.unique(ids)) > _MANY:
                label_means = compute_label_means(ids, targets, 1 if weights is None else weights, self.seed)
                tree_input = label_means.describe(tree_input.feature)
                out_of_fold[tree_input.feature] = label_means.out_of_fold
            inputs.append(tree_input)
        return tuple(inputs), self._create_dataset(inputs, rows, out_of_fold)

    def choose_ids(self, rows: Rows) -> tuple[TreeInput, ...]:
        """Choose the IDs that are categories or words, by feature; return the inputs with their IDs."""
        return tuple(self._choose_ids(tree_input, rows) for tree_input in self.inputs)

    def _choose_ids(self, tree_input: TreeInput, rows: Rows) -> TreeInput:
        values = rows.features[tree_input.feature]
        if tree_input.kind == "category":
            return tree_input._replace(ids=tuple(choose_frequent(values, _CATEGORIES, _LEAST_ROWS).tolist()))
        if tree_input.kind == "weighted_words":
            values = weighted_ids.unpack_ids(values)
        if tree_input.kind in ("words", "weighted_words"):
            return tree_input._replace(ids=tuple(np.sort(self._choose_words(values, rows.label)).tolist()))
        return tree_input

    def _choose_words(self, values: npt.NDArray[np.int64], label: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Choose the IDs whose rows differ most from all rows in the mean label, or in the share of a class."""
        # Count a row once per ID. ID 0 is padding.
        pairs = np.unique(values * len(values) + np.arange(len(values))[:, np.newaxis])
        pairs = pairs[pairs >= len(values)]
        ids, number, counts = np.unique(pairs // len(values), return_inverse=True, return_counts=True)
        row = pairs % len(values)
        scores = np.zeros(len(ids))
        for target in [label] if self.head.scale else [label == value for value in range(max(2, self.head.outputs))]:
            sums = np.bincount(number, (target - target.mean())[row], len(ids))
            scores = np.maximum(scores, np.abs(sums) / np.sqrt(counts))
        best: npt.NDArray[np.int64] = ids[np.argsort(-scores, kind="stable")][:_WORDS]
        return best

    def _train_model(
        self,
        shape: Shape,
        inputs: Sequence[TreeInput],
        dataset: Dataset,
        validation: Dataset | None = None,
        seconds: float = math.inf,
        seed: int | None = None,
    ) -> Any:
        """Train one forest of YDF, with fewer trees if it would take longer than `seconds`.

        Without validation rows, it otherwise has exactly `shape.trees` trees per logit.
        """
        regression = self.head.scale is not None
        directions = [self.directions.get(part.feature, 0) for part in inputs for _ in range(part.columns)]
        # There may be more rows here than the shape was selected on.
        is_exact = shape.oblique or self._is_exact(dataset)
        features = []
        for number, (categories, direction) in enumerate(zip(count_categories(inputs), directions, strict=True)):
            semantic = ydf.Semantic.NUMERICAL if is_exact or direction else ydf.Semantic.DISCRETIZED_NUMERICAL
            semantic = ydf.Semantic.CATEGORICAL if categories else semantic
            features.append(ydf.Feature(str(number), semantic, monotonic=direction))
        learner = ydf.GradientBoostedTreesLearner(
            label="label",
            weights=_WEIGHT if _WEIGHT in dataset else None,
            task=ydf.Task.REGRESSION if regression else ydf.Task.CLASSIFICATION,
            loss=_choose_loss(self.config, self.head),
            focal_loss_gamma=self.config.focal_gamma,
            features=features,
            min_vocab_frequency=1,
            max_vocab_count=-1,
            num_trees=shape.trees,
            max_depth=shape.depth,
            shrinkage=self.config.shrinkage,
            categorical_algorithm=shape.partition,
            **(_OBLIQUE if shape.oblique else {}),
            # YDF supports directions only with this gain.
            use_hessian_gain=bool(self.directions),
            subsample=_SUBSAMPLE,
            num_candidate_attributes_ratio=_COLUMNS,
            # With 0, YDF would not stop early, even with a validation dataset.
            validation_ratio=0.1 if validation else 0.0,
            early_stopping="LOSS_INCREASE" if validation else "NONE",
            early_stopping_num_trees_look_ahead=_PATIENCE,
            maximum_training_duration_seconds=seconds if math.isfinite(seconds) else -1.0,
            random_seed=self.seed if seed is None else seed,
            num_threads=_count_threads(dataset),
            # Without a link function, the model predicts logits, but YDF 0.9 ignores this option if splits are oblique.
            apply_link_function=shape.oblique,
        )
        return learner.train(dataset, validation, verbose=0)

    def _create_dataset(
        self, inputs: Sequence[TreeInput], rows: Rows, out_of_fold: Mapping[str, Floats] | None = None
    ) -> Dataset:
        """Return rows as YDF takes them.

        Args:
          inputs: What a forest reads.
          rows: The rows.
          out_of_fold: Feature → means that exclude the labels of the row's fold, and replace the feature's means.
        """
        table = matrix(inputs, {name: tf.constant(values) for name, values in rows.features.items()}).numpy()
        ends = itertools.accumulate(tree_input.columns for tree_input in inputs)
        for tree_input, end in zip(inputs, ends, strict=True):
            if out_of_fold and tree_input.feature in out_of_fold:
                table[:, end - tree_input.columns : end] = out_of_fold[tree_input.feature]
        columns = {
            str(number): table[:, number].astype(np.int64) if categories else table[:, number]
            for number, categories in enumerate(count_categories(inputs))
        }
        weights = self.weights_of(rows)
        return {**columns, "label": self._scale(rows.label)} | ({} if weights is None else {_WEIGHT: weights})

    def _scale(self, label: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the labels as YDF takes them."""
        if not self.head.scale:
            return label
        shift, unit = self.head.scale
        return ((label - shift) / unit).astype(np.float32)

    def weights_of(self, rows: Rows) -> npt.NDArray[np.float32] | None:
        """Return the weights of the rows in the loss, float32 [rows]; None if all are equal."""
        if not self.head.weights and rows.weight is None:
            return None
        class_weight = 1 if self.head.weights is None else self.head.weights(tf.constant(rows.label)).numpy()
        row_weight = 1 if rows.weight is None else rows.weight / self.head.mean_weight
        return np.asarray(class_weight * row_weight, np.float32)


def _choose_loss(config: ModelConfig, head: PredictionHead) -> str:
    """Return YDF's name of the loss."""
    if config.loss == "poisson":
        return "POISSON"
    if config.loss == "focal":
        return "BINARY_FOCAL_LOSS"
    # YDF's default would be the binary loss if only two of several classes occur in the rows.
    return "MULTINOMIAL_LOG_LIKELIHOOD" if head.outputs > 1 else "DEFAULT"


def _count_forests(dataset: Dataset) -> int:
    """Return the number of forests that are trained at a time."""
    return len(os.sched_getaffinity(0)) if _count_threads(dataset) == 1 else 1


def _count_threads(dataset: Dataset) -> int:
    """Return the number of threads for one forest.

    YDF's threads wait for each other at every condition, so one thread is faster unless there are many rows. One thread
    draws other random numbers than several threads do, so the choice depends on the rows and not on the cores.
    """
    return 1 if len(dataset["label"]) <= _COMPARED else max(2, len(os.sched_getaffinity(0)))


def predict(trees: Trees, features: Mapping[str, npt.NDArray[Any]]) -> Floats:
    """Return the logits of a forest, float32 [rows, outputs]."""
    # Not as a graph, because tracing takes longer than the only call.
    logits: Floats = Forest(trees)({name: tf.constant(values) for name, values in features.items()}).numpy()
    return logits
