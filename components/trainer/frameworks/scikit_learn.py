"""Conversion of scikit-learn's linear models, forests and gradient boosting to TensorFlow.

It reads what a fitted estimator stores, and does not import scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from components.base.errors import InputError
from components.models.forest import Forest, TreeInput
from components.models.linear_terms import LinearTerms, LinearWeights
from components.trainer.frameworks.predictor import Output, Predictor
from components.trainer.frameworks.training_data import TrainingData
from components.trainer.frameworks.tree_tables import BinaryTree, create_trees, next_above

_CONVERTED = "a linear model, a decision tree, RandomForest, ExtraTrees, GradientBoosting or HistGradientBoosting"


def convert(model: Any, data: TrainingData, columns: list[int]) -> Predictor:
    """Convert a fitted estimator.

    Args:
      model: A classifier or regressor.
      data: The rows that it was trained on.
      columns: Columns of `data.numbers` that the estimator reads, in its order.

    Raises:
      InputError: If the estimator is of another kind, or a classifier without probabilities.
    """
    is_classifier = data.task != "regression"
    if is_classifier and not hasattr(model, "predict_proba"):
        raise InputError(
            f"model.train: expected a classifier with probabilities, received {type(model).__name__}",
            "return a classifier with the method predict_proba, such as LogisticRegression",
        )

    def predict(table: pa.Table) -> Any:
        # An estimator that was fitted without names warns about names.
        numbers = data.numbers(table)
        rows = numbers if hasattr(model, "feature_names_in_") else numbers.to_numpy()
        rows = rows.iloc[:, columns] if hasattr(model, "feature_names_in_") else rows[:, columns]
        if not is_classifier:
            return model.predict(rows)
        probabilities = model.predict_proba(rows)
        return probabilities[:, 1] if data.task == "binary" else probabilities

    classes = _list_classes(model, data) if is_classifier else None
    layer: Any
    output: Output
    if hasattr(model, "coef_"):
        layer, output = _create_linear(model, data, columns), "logits" if is_classifier else "prediction"
    elif hasattr(model, "_predictors"):
        layer, output = _create_histogram_boosting(model, data.inputs, columns, is_classifier)
    elif hasattr(model, "tree_"):
        layer, output = _create_forest([model], data, columns), "prediction"
    elif hasattr(model, "estimators_") and hasattr(model, "learning_rate") and np.ndim(model.estimators_) == 2:
        layer, output = _create_boosting(model, data, columns), "logits" if is_classifier else "prediction"
    elif hasattr(model, "estimators_") and all(hasattr(tree, "tree_") for tree in model.estimators_):
        layer, output = _create_forest(model.estimators_, data, columns), "prediction"
    else:
        raise InputError(
            f"model.train: expected {_CONVERTED}, received {type(model).__name__}",
            "return one of these, or an OnnxModel or a TensorFlowModel (docs/how-to/frameworks.md)",
        )
    return Predictor(layer, output, predict, classes=classes)


def _list_classes(model: Any, data: TrainingData) -> list[int] | None:
    """Return the classes that the estimator knows; None for a binary label."""
    classes = [int(number) for number in model.classes_]
    if data.task == "multiclass":
        return classes
    if classes != [0, 1]:
        raise InputError(
            f"model.train: expected a classifier of the classes 0 and 1, received the classes {classes}",
            'train with data.train["label"]',
        )
    return None


def _create_linear(model: Any, data: TrainingData, columns: list[int]) -> LinearTerms:
    weights = np.zeros((len(data.columns), np.atleast_2d(model.coef_).shape[0]), np.float32)
    weights[columns] = np.atleast_2d(model.coef_).T
    infinite = np.full(len(data.columns), np.inf, np.float32)
    bias = np.broadcast_to(np.asarray(model.intercept_, np.float32).reshape(-1), weights.shape[1])
    none = np.zeros(0, np.int32)
    no_categories = np.zeros((0, weights.shape[1]), np.float32)
    linear = LinearWeights(data.inputs, bias, weights, -infinite, infinite, none, none, no_categories)
    return LinearTerms(linear, name="linear")


def _read_tree(tree: Any, columns: list[int], value: Any) -> BinaryTree:
    """Read a tree whose rows go left if their value is not above the threshold."""
    column = np.asarray(columns)[np.maximum(tree.feature, 0)]
    return BinaryTree(tree.children_left, tree.children_right, column, next_above(tree.threshold), value)


def _create_forest(estimators: Any, data: TrainingData, columns: list[int]) -> Forest:
    """Convert trees whose mean is the prediction."""
    trees = []
    for estimator in estimators:
        value = estimator.tree_.value[:, 0, :]
        if data.task != "regression":
            # Older releases store the number of rows per class.
            value = value / value.sum(axis=1, keepdims=True)
            value = value[:, 1:] if data.task == "binary" else value
        trees.append(_read_tree(estimator.tree_, columns, value / len(estimators)))
    outputs = trees[0].value.shape[1]
    return Forest(create_trees(trees, [0] * len(trees), data.inputs, np.zeros(outputs)), name="forest")


def _create_boosting(model: Any, data: TrainingData, columns: list[int]) -> Forest:
    """Convert GradientBoosting."""
    trees = [
        _read_tree(estimator.tree_, columns, model.learning_rate * estimator.tree_.value[:, 0, 0])
        for estimator in model.estimators_.reshape(-1)
    ]
    outputs = model.estimators_.shape[1]
    zeros = np.zeros((1, len(columns)), np.float32)
    # The initial prediction is a constant: what the estimator computes for a row without the trees' values.
    bias = np.asarray(model._raw_predict_init(zeros), np.float64).reshape(-1)
    return Forest(create_trees(trees, _repeat_outputs(trees, outputs), data.inputs, bias), name="forest")


def _create_histogram_boosting(
    model: Any, inputs: tuple[TreeInput, ...], columns: list[int], is_classifier: bool
) -> tuple[Forest, Output]:
    if model.is_categorical_ is not None and np.any(model.is_categorical_):
        raise InputError(
            f"model.train: expected {type(model).__name__} without categorical features, received some",
            "remove categorical_features, or train with LightGBM, whose categories are converted",
        )
    trees = []
    for predictor in [predictor for iteration in model._predictors for predictor in iteration]:
        nodes = predictor.nodes
        is_leaf = nodes["is_leaf"].astype(bool)
        left, right = (np.where(is_leaf, -1, nodes[name].astype(np.int64)) for name in ("left", "right"))
        column = np.asarray(columns)[np.where(is_leaf, 0, nodes["feature_idx"])]
        threshold = next_above(np.where(is_leaf, 0.0, nodes["num_threshold"]))
        trees.append(BinaryTree(left, right, column, threshold, nodes["value"]))
    outputs = model.n_trees_per_iteration_
    forest = Forest(
        create_trees(trees, _repeat_outputs(trees, outputs), inputs, np.ravel(model._baseline_prediction)),
        name="forest",
    )
    if is_classifier:
        return forest, "logits"
    return forest, "logarithm" if model.loss in ("poisson", "gamma") else "prediction"


def _repeat_outputs(trees: list[BinaryTree], outputs: int) -> list[int]:
    """Return the outputs of trees that add to all outputs in turn."""
    return [number % outputs for number in range(len(trees))]
