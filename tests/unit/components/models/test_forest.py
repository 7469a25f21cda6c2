"""Tests that a forest evaluates its arrays, and that it reads one of several columns with the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features import weighted_ids
from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.feature_spec import Dense, Ids
from components.features.plan import FeaturePlan
from components.models.forest import NO_TREE, Forest, TreeInput, Trees, ensemble, forest, matrix, tree_inputs
from components.models.inputs import Inputs, inputs


def trees(inputs: list[TreeInput], bias: list[float], roots: list[int], nodes: list[Any], members: Any = ()) -> Trees:
    """Return a forest with these nodes.

    Args:
        inputs: Inputs of the forest.
        bias: Bias of every logit.
        roots: Index of the root node of every tree.
        nodes: Nodes as tuples of column or weight by column, threshold, first category, node below, and value.
        members: Members of the conditions on categories.
    """
    columns, threshold, categories, below, value = (np.array(field) for field in zip(*nodes, strict=True))
    weights = [column if isinstance(column, dict) else {column: 1.0} for column in columns]
    most = max(map(len, weights))
    return Trees(
        tuple(inputs),
        np.array(bias, np.float32),
        np.array(roots, np.int32),
        np.array([[*node, *[0] * (most - len(node))] for node in weights], np.int32),
        np.array([[*node.values(), *[0] * (most - len(node))] for node in weights], np.float32),
        threshold.astype(np.float32),
        categories.astype(np.int32),
        below.astype(np.int32),
        value.astype(np.float32),
        np.array(members, bool),
        depth=2,
    )


NAN = float("nan")
NUMBER = [TreeInput("x", "number")]
STUMP = [(0, 1.5, -1, 1, 0.0), (0, NAN, -1, 1, -1.0), (0, NAN, -1, 2, 1.0)]


def logits(network: tf_keras.Model, **features: Any) -> Any:
    return network({name: tf.constant(values) for name, values in features.items()}).numpy()


def test_number_equal_to_the_threshold_meets_the_condition() -> None:
    model = forest(trees(NUMBER, [0.25], [0], STUMP), Inputs({"x": Dense()}))
    actual = logits(model, x=[1.0, np.nextafter(np.float32(1.5), np.float32(0)), 1.5, 1e30, np.inf, -np.inf])
    np.testing.assert_array_equal(actual[:, 0], [-0.75, -0.75, 1.25, 1.25, 1.25, -0.75])


def test_oblique_condition_compares_a_weighted_sum() -> None:
    forest_inputs = [TreeInput("x", "number", width=2), TreeInput("word", "category", ids=(3, 7))]
    # The conditions are on 2 * x[0] - x[1], then on the category, then on x[1].
    nodes = [
        ({0: 2.0, 1: -1.0}, 3.0, -1, 1, 0.0), (2, NAN, 0, 3, 0.0), (1, 5.0, -1, 5, 0.0),
        (0, NAN, -1, 3, 1.0), (0, NAN, -1, 4, 10.0), (0, NAN, -1, 5, 100.0), (0, NAN, -1, 6, 1000.0),
    ]  # fmt: skip
    model = forest(
        trees(forest_inputs, [0.0], [0], nodes, [False, True, False]), Inputs({"x": Dense(2), "word": Ids(20)})
    )
    actual = logits(model, x=[[1.0, 0], [1, 0], [2, 1], [4, 5]], word=np.array([3, 7, 3, 3]))
    np.testing.assert_array_equal(actual[:, 0], [10, 1, 100, 1000])


def test_category_meets_a_condition_that_lists_it_as_a_member() -> None:
    forest_inputs = [*NUMBER, TreeInput("word", "category", ids=(3, 7, 9))]
    # The members of the second tree's condition begin at index 4. Unknown IDs are category 0.
    nodes = [
        (1, NAN, 0, 1, 0.0), (0, NAN, -1, 1, 1.0), (0, NAN, -1, 2, 10.0),
        (1, NAN, 4, 4, 0.0), (0, NAN, -1, 4, 100.0), (0, NAN, -1, 5, 1000.0),
    ]  # fmt: skip
    members = [False, True, False, True, True, False, False, True]
    model = forest(trees(forest_inputs, [0.0], [0, 3], nodes, members), Inputs({"x": Dense(), "word": Ids(20)}))
    actual = logits(model, x=np.full(6, 2**40, np.float32), word=np.array([3, 7, 9, 0, 8, 19]))
    np.testing.assert_array_equal(actual[:, 0], [110, 101, 1010, 1001, 1001, 1001])


def test_logits_may_have_different_numbers_of_trees() -> None:
    nodes = [*STUMP, (0, 0.0, -1, 4, 0.0), (0, NAN, -1, 4, 5.0), (0, NAN, -1, 5, 7.0)]
    model = forest(trees(NUMBER, [0, 1, 2], [0, 3, NO_TREE, 3, NO_TREE, NO_TREE], nodes), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[-1.0, 2.0]), [[4, 6, 2], [8, 8, 2]])


def test_forest_may_have_more_trees_than_are_evaluated_together() -> None:
    model = forest(trees(NUMBER, [0.0], [0] * 77, STUMP), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[0.0, 3.0])[:, 0], [-77, 77])


def test_forest_without_trees_returns_its_bias() -> None:
    model = forest(trees(NUMBER, [0.5], [], STUMP), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[0.0, 3.0])[:, 0], [0.5, 0.5])
    assert logits(model, x=np.zeros(0, np.float32)).shape == (0, 1)


def test_subnormal_threshold_separates_0_from_larger_numbers() -> None:
    least = float(np.nextafter(np.float32(0), np.float32(1)))
    for threshold, expected in ((least, [0, 0, 1]), (-least, [0, 1, 1])):
        nodes = [(0, threshold, -1, 1, 0.0), (0, np.nan, -1, 1, 0.0), (0, np.nan, -1, 2, 1.0)]
        model = forest(trees(NUMBER, [0.0], [0], nodes), Inputs({"x": Dense()}))
        np.testing.assert_array_equal(logits(model, x=[-1.0, 0.0, 1.0])[:, 0], expected)


def test_matrix_has_columns_for_every_kind_of_input() -> None:
    forest_inputs = [
        TreeInput("pixels", "number", width=2),
        TreeInput("bins", "sum"),
        TreeInput("word", "category", ids=(2, 5)),
        TreeInput("words", "words", width=0, ids=(4, 6, 8)),
        TreeInput("weighted", "weighted_words", width=0, ids=(4, 6)),
        TreeInput("hour", "number"),
        TreeInput("shop", "means", width=2, ids=(3, 8), means=((0.5, 0.5), (0.25, 0.75), (1.0, 0.0))),
    ]
    features = {
        "pixels": tf.constant([[0.5, 1.0], [2.0, 3.0]]),
        "bins": tf.constant([[1.0, 0.25, 0.0], [1.0, 1.0, 1.0]]),
        "word": tf.constant([5, 4], tf.int64),
        "words": tf.constant([[8, 8, 4, 0], [0, 0, 0, 0]], tf.int64),
        "weighted": weighted_ids.pack(tf.constant([[9, 6], [4, 0]], tf.int64), tf.constant([[0.75, 0.5], [1, 0]])),
        "hour": tf.constant([23, 0], tf.int64),
        "shop": tf.constant([8, 9], tf.int64),
    }
    columns = matrix(forest_inputs, features)
    assert columns.dtype == tf.float32
    np.testing.assert_array_equal(
        columns, [[0.5, 1, 1.25, 2, 1, 0, 1, 0, 0.5, 23, 1, 0], [2, 3, 3, 0, 0, 0, 0, 1, 0, 0, 0.5, 0.5]]
    )
    assert sum(forest_input.columns for forest_input in forest_inputs) == columns.shape[1]


COLUMNS = {
    "fare": ["log", "z_score", {"piecewise_linear": {"bins": 4}}, "missing"],
    "tip": [{"piecewise_linear": {"bins": 4}}, "min_max"],
    "age": {"piecewise_linear": {"bins": 4}},
    "angle": {"cyclical": {"period": 360}},
    "company": ["vocab", {"multi_hot": {"size": 3}}],
    "seats": ["z_score", "vocab"],
    "miles": {"bucketize": {"buckets": 5}},
    "at": {"date_parts": ["year", "hour"]},
    "comment": "text",
    "note": {"text": {"vocabulary": 10, "weighting": "tf_idf"}},
}


def test_forest_reads_one_of_several_numbers_with_the_same_order() -> None:
    plan = FeaturePlan(features=FeaturesConfig(columns=COLUMNS), labels=(Label("y"),), task="binary")
    selected = {
        forest_input.feature: (forest_input.kind, forest_input.width)
        for forest_input in tree_inputs(plan, inputs(plan, lambda name: 10))
    }
    assert selected == {
        "fare_log": ("number", 1),
        "fare_missing": ("number", 1),
        "tip_min_max": ("number", 1),
        "age_piecewise_linear": ("sum", 1),
        "angle_cyclical": ("number", 2),
        "company_vocab": ("category", 1),
        "company_multi_hot": ("number", 4),
        "seats_z_score": ("number", 1),
        "miles_bucketize": ("number", 1),
        "at_year": ("number", 1),
        "at_hour": ("number", 1),
        "comment_text": ("words", 0),
        "note_text": ("weighted_words", 0),
    }


@pytest.mark.parametrize(("share", "names"), [(0.0, {"x"}), (0.25, {"x", "word"}), (1.0, {"word"})])
def test_ensemble_is_the_weighted_mean_of_the_logits(share: float, names: set[str]) -> None:
    model_inputs = Inputs({"x": Dense(), "word": Ids(4)})
    word = tf_keras.Input((), name="word", dtype="int64")
    members = tf_keras.layers.Lambda(lambda ids: tf.cast(ids, tf.float32)[:, tf.newaxis, tf.newaxis] + [[[0.0], [2.0]]])
    network = tf_keras.Model({"word": word}, members(word))
    model = ensemble(
        network,
        lambda member_logits: tf.reduce_mean(member_logits, axis=1),
        [Forest(trees(NUMBER, [0.0], [0], STUMP))],
        [share, 1 - share],
        model_inputs,
    )
    # A member without weight is not computed, so its features are not read.
    assert {tensor.name for tensor in model.inputs} == names
    rows = {"x": [0.0, 2.0], "word": np.array([1, 3])}
    actual = logits(model, **{name: rows[name] for name in names})
    # All shares and logits are multiples of a quarter, so the products are exact.
    np.testing.assert_array_equal(actual, [[share * 2 - (1 - share)], [share * 4 + (1 - share)]])


def test_members_of_an_ensemble_share_the_features_that_both_read() -> None:
    x = tf_keras.Input((), name="x")
    network = tf_keras.Model({"x": x}, tf_keras.layers.Lambda(lambda values: values[:, tf.newaxis])(x))
    model = ensemble(
        network, tf.identity, [Forest(trees(NUMBER, [0.0], [0], STUMP))], [0.5, 0.5], Inputs({"x": Dense()})
    )
    np.testing.assert_array_equal(logits(model, x=[0.0, 2.0]), [[-0.5], [1.5]])


def test_saved_forest_only_uses_standard_operations(tmp_path: Any) -> None:
    model = forest(trees(NUMBER, [0.25], [0], STUMP), Inputs({"x": Dense()}))
    module = tf.Module()
    module.weights = model.variables
    signature = tf.function(
        lambda x: {"logits": model({"x": x})}, [tf.TensorSpec([None], tf.float32, name="x")], autograph=False
    )
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    np.testing.assert_array_equal(loaded(x=tf.constant([0.0, 2.0]))["logits"], [[-0.75], [1.25]])
