"""Conversion of LightGBM's boosters to TensorFlow, from the dictionary that `Booster.dump_model` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from components.base.errors import InputError
from components.models.forest import Forest, TreeInput
from components.trainer.frameworks.predictor import Output
from components.trainer.frameworks.tree_tables import BinaryTree, create_trees, next_above

_OUTPUTS: Mapping[str, Output] = {
    **dict.fromkeys(("binary", "cross_entropy", "multiclass"), "logits"),
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), "prediction"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "logarithm"),
}
"""Objective → what the sum of the trees is."""


def convert(dump: Mapping[str, Any], inputs: tuple[TreeInput, ...], columns: list[int]) -> tuple[Forest, Output]:
    """Convert a booster.

    Args:
      dump: What `dump_model` returns.
      inputs: Inputs of the matrix of `TrainingData.numbers`.
      columns: Columns of the matrix that the booster reads, in its order.

    Returns:
      The forest, and what it computes.

    Raises:
      InputError: If the objective or the trees are of a kind that is not converted.
    """
    objective, *options = str(dump.get("objective") or "none").split()
    if objective not in _OUTPUTS or "sqrt" in options:
        raise _refuse(f"objective {' '.join([objective, *options])}", "choose another objective")
    per_iteration = dump["num_tree_per_iteration"]
    # The objective binary scales the logit.
    factor = float(dict(option.split(":") for option in options if ":" in option).get("sigmoid", 1))
    if dump.get("average_output"):
        factor /= len(dump["tree_info"]) // per_iteration
    trees = [_read_tree(tree["tree_structure"], columns, factor) for tree in dump["tree_info"]]
    outputs = [number % per_iteration for number in range(len(trees))]
    forest = Forest(create_trees(trees, outputs, inputs, np.zeros(per_iteration)), name="forest")
    return forest, _OUTPUTS[objective]


def _read_tree(root: Mapping[str, Any], columns: list[int], factor: float) -> BinaryTree:
    nodes, left, right = [root], [], []
    for node in nodes:
        is_leaf = "split_feature" not in node
        left.append(-1 if is_leaf else len(nodes))
        right.append(-1 if is_leaf else len(nodes) + 1)
        if is_leaf:
            if "leaf_const" in node:
                raise _refuse("linear_tree", "remove linear_tree")
            continue
        if node["missing_type"] == "Zero":
            raise _refuse("zero_as_missing", "remove zero_as_missing; transformed features are never missing")
        nodes += [node["left_child"], node["right_child"]]
    is_category = [node.get("decision_type") == "==" for node in nodes]
    thresholds = [
        0.0 if category else node.get("threshold", 0.0) for node, category in zip(nodes, is_category, strict=True)
    ]
    return BinaryTree(
        np.array(left),
        np.array(right),
        np.array([columns[node.get("split_feature", 0)] for node in nodes]),
        next_above(np.array(thresholds, np.float64)),
        factor * np.array([node.get("leaf_value", 0.0) for node in nodes]),
        {
            number: [int(text) for text in str(node["threshold"]).split("||")]
            for number, node in enumerate(nodes)
            if is_category[number]
        },
    )


def _refuse(received: str, remedy: str) -> InputError:
    objectives = ", ".join(_OUTPUTS)
    return InputError(
        f"model.train: expected a LightGBM model with one of the objectives {objectives}, and plain trees; "
        f"received {received}",
        remedy,
    )
