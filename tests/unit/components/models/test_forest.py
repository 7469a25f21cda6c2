"""A forest computes what its arrays say, and reads one column of each order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.config import FeaturesConfig
from components.features.feature_spec import Dense, Ids
from components.features.plan import FeaturePlan
from components.models.forest import NO_TREE, TreeInput, Trees, ensemble, forest, matrix, tree_inputs
from components.models.inputs import Inputs, inputs


def trees(inputs: list[TreeInput], bias: list[float], roots: list[int], nodes: list[Any], members: Any = ()) -> Trees:
    """Return a forest of nodes (column or {column: weight}, threshold, first category, below, value)."""
    read, threshold, categories, below, value = (np.array(each) for each in zip(*nodes, strict=True))
    read = [each if isinstance(each, dict) else {each: 1.0} for each in read]
    most = max(map(len, read))
    return Trees(
        tuple(inputs),
        np.array(bias, np.float32),
        np.array(roots, np.int32),
        np.array([[*each, *[0] * (most - len(each))] for each in read], np.int32),
        np.array([[*each.values(), *[0] * (most - len(each))] for each in read], np.float32),
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


def test_number_at_the_threshold_fulfils_the_condition() -> None:
    model = forest(trees(NUMBER, [0.25], [0], STUMP), Inputs({"x": Dense()}))
    found = logits(model, x=[1.0, np.nextafter(np.float32(1.5), np.float32(0)), 1.5, 1e30, np.inf, -np.inf])
    np.testing.assert_array_equal(found[:, 0], [-0.75, -0.75, 1.25, 1.25, 1.25, -0.75])


def test_oblique_condition_compares_a_weighted_sum() -> None:
    given = [TreeInput("x", "number", width=2), TreeInput("word", "category", ids=(3, 7))]
    # The sum of 2 * x[0] and -x[1], then the category, then x[1] alone.
    nodes = [
        ({0: 2.0, 1: -1.0}, 3.0, -1, 1, 0.0), (2, NAN, 0, 3, 0.0), (1, 5.0, -1, 5, 0.0),
        (0, NAN, -1, 3, 1.0), (0, NAN, -1, 4, 10.0), (0, NAN, -1, 5, 100.0), (0, NAN, -1, 6, 1000.0),
    ]  # fmt: skip
    model = forest(trees(given, [0.0], [0], nodes, [False, True, False]), Inputs({"x": Dense(2), "word": Ids(20)}))
    found = logits(model, x=[[1.0, 0], [1, 0], [2, 1], [4, 5]], word=np.array([3, 7, 3, 3]))
    np.testing.assert_array_equal(found[:, 0], [10, 1, 100, 1000])


def test_category_is_looked_up_among_the_members_of_its_condition() -> None:
    given = [*NUMBER, TreeInput("word", "category", ids=(3, 7, 9))]
    # The second tree's condition begins at member 4; unknown ids are category 0.
    nodes = [
        (1, NAN, 0, 1, 0.0), (0, NAN, -1, 1, 1.0), (0, NAN, -1, 2, 10.0),
        (1, NAN, 4, 4, 0.0), (0, NAN, -1, 4, 100.0), (0, NAN, -1, 5, 1000.0),
    ]  # fmt: skip
    members = [False, True, False, True, True, False, False, True]
    model = forest(trees(given, [0.0], [0, 3], nodes, members), Inputs({"x": Dense(), "word": Ids(20)}))
    found = logits(model, x=np.full(6, 2**40, np.float32), word=np.array([3, 7, 9, 0, 8, 19]))
    np.testing.assert_array_equal(found[:, 0], [110, 101, 1010, 1001, 1001, 1001])


def test_trees_add_to_their_own_logit_and_some_logits_have_fewer() -> None:
    nodes = [*STUMP, (0, 0.0, -1, 4, 0.0), (0, NAN, -1, 4, 5.0), (0, NAN, -1, 5, 7.0)]
    model = forest(trees(NUMBER, [0, 1, 2], [0, 3, NO_TREE, 3, NO_TREE, NO_TREE], nodes), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[-1.0, 2.0]), [[4, 6, 2], [8, 8, 2]])


def test_more_trees_than_are_walked_together() -> None:
    model = forest(trees(NUMBER, [0.0], [0] * 77, STUMP), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[0.0, 3.0])[:, 0], [-77, 77])


def test_forest_without_trees_is_its_bias() -> None:
    model = forest(trees(NUMBER, [0.5], [], STUMP), Inputs({"x": Dense()}))
    np.testing.assert_array_equal(logits(model, x=[0.0, 3.0])[:, 0], [0.5, 0.5])
    assert logits(model, x=np.zeros(0, np.float32)).shape == (0, 1)


def test_matrix_has_the_columns_of_each_kind() -> None:
    given = [
        TreeInput("pixels", "number", width=2),
        TreeInput("bins", "sum"),
        TreeInput("word", "category", ids=(2, 5)),
        TreeInput("words", "words", width=0, ids=(4, 6, 8)),
        TreeInput("hour", "number"),
    ]
    features = {
        "pixels": tf.constant([[0.5, 1.0], [2.0, 3.0]]),
        "bins": tf.constant([[1.0, 0.25, 0.0], [1.0, 1.0, 1.0]]),
        "word": tf.constant([5, 4], tf.int64),
        "words": tf.constant([[8, 8, 4, 0], [0, 0, 0, 0]], tf.int64),
        "hour": tf.constant([23, 0], tf.int64),
    }
    found = matrix(given, features)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, [[0.5, 1, 1.25, 2, 1, 0, 1, 23], [2, 3, 3, 0, 0, 0, 0, 0]])
    assert sum(each.columns for each in given) == found.shape[1]


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
}


def test_of_numbers_in_the_same_order_a_forest_reads_one() -> None:
    plan = FeaturePlan(features=FeaturesConfig(columns=COLUMNS), label="y", task="binary")
    found = {each.feature: (each.kind, each.width) for each in tree_inputs(plan, inputs(plan, lambda name: 10))}
    assert found == {
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
    }


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_ensemble_is_the_weighted_mean_of_the_logits(share: float) -> None:
    both = Inputs({"x": Dense(), "word": Ids(4)})
    word = tf_keras.Input((), name="word", dtype="int64")
    members = tf_keras.layers.Lambda(lambda ids: tf.cast(ids, tf.float32)[:, tf.newaxis, tf.newaxis] + [[[0.0], [2.0]]])
    network = tf_keras.Model({"word": word}, members(word))
    model = ensemble(network, lambda each: tf.reduce_mean(each, axis=1), share, trees(NUMBER, [0.0], [0], STUMP), both)
    assert {tensor.name for tensor in model.inputs} == {"x", "word"}
    found = logits(model, x=[0.0, 2.0], word=np.array([1, 3]))
    # All shares and logits are multiples of a quarter.
    np.testing.assert_array_equal(found, [[share * 2 - (1 - share)], [share * 4 + (1 - share)]])


def test_saved_forest_needs_no_other_operations(tmp_path: Any) -> None:
    model = forest(trees(NUMBER, [0.25], [0], STUMP), Inputs({"x": Dense()}))
    module = tf.Module()
    module.weights = model.variables
    signature = tf.function(
        lambda x: {"logits": model({"x": x})}, [tf.TensorSpec([None], tf.float32, name="x")], autograph=False
    )
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    np.testing.assert_array_equal(loaded(x=tf.constant([0.0, 2.0]))["logits"], [[-0.75], [1.25]])
