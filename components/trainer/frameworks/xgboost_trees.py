"""Conversion of XGBoost's boosters to TensorFlow, from the JSON that `Booster.save_raw` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from components.base.errors import InputError
from components.models.forest import Forest, TreeInput
from components.trainer.frameworks.predictor import Output
from components.trainer.frameworks.tree_tables import BinaryTree, create_trees

_OUTPUTS: Mapping[str, Output] = {
    **dict.fromkeys(("binary:logistic", "multi:softprob"), "logits"),
    **dict.fromkeys(("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"), "prediction"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), "logarithm"),
}
"""Objective → what the sum of the trees is."""


def convert(
    model: Mapping[str, Any], iterations: int | None, inputs: tuple[TreeInput, ...], columns: Sequence[int]
) -> tuple[Forest, Output]:
    """Convert a booster.

    Args:
      model: The JSON of the model, parsed.
      iterations: Number of iterations to use; None for all.
      inputs: Inputs of the matrix of `TrainingData.numbers`.
      columns: Columns of the matrix that the booster reads, in its order.

    Returns:
      The forest, and what it computes.

    Raises:
      InputError: If the objective, the booster or the trees are of a kind that is not converted.
    """
    learner = model["learner"]
    objective, booster = learner["objective"]["name"], learner["gradient_booster"]["name"]
    if objective not in _OUTPUTS or booster != "gbtree":
        raise _refuse(f"booster {booster} with objective {objective}")
    ensemble = learner["gradient_booster"]["model"]
    count = len(ensemble["trees"]) if iterations is None else ensemble["iteration_indptr"][iterations]
    outputs = max(1, int(learner["learner_model_param"]["num_class"]))
    # Since 3.1, the score is a list with a number per output.
    scores = np.array(str(learner["learner_model_param"]["base_score"]).strip("[]").split(","), np.float64)
    if objective == "binary:logistic":
        scores = np.log(scores) - np.log1p(-scores)
    elif _OUTPUTS[objective] == "logarithm":
        scores = np.log(scores)
    trees = [_read_tree(tree, columns) for tree in ensemble["trees"][:count]]
    bias = np.broadcast_to(scores, outputs)
    forest = Forest(create_trees(trees, ensemble["tree_info"][:count], inputs, bias), name="forest")
    return forest, _OUTPUTS[objective]


def _read_tree(tree: Mapping[str, Any], columns: Sequence[int]) -> BinaryTree:
    if tree["categories_nodes"] or int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise _refuse("trees with categories or several values per leaf")
    left = np.array(tree["left_children"])
    # A row goes left if its value is below the condition; for leaves, the condition is their value.
    conditions = np.array(tree["split_conditions"], np.float32)
    column = np.asarray(columns)[tree["split_indices"]]
    return BinaryTree(left, np.array(tree["right_children"]), column, conditions, np.where(left == -1, conditions, 0))


def _refuse(received: str) -> InputError:
    return InputError(
        f"model.train: expected an XGBoost model of gbtree with one of the objectives {', '.join(_OUTPUTS)}, and trees "
        f"of numbers; received {received}",
        "choose one of these objectives, and train without categories and without multi_strategy",
    )
