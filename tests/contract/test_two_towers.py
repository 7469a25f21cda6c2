"""The towers of a retrieval model share embeddings, and find the items of a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.feature_spec import Dense, Ids
from components.models import two_tower
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.models.layers import Table
from components.trainer.retrieval import sampled_softmax

pytestmark = pytest.mark.both_lines

INPUTS = Inputs(
    {
        "user": Ids(9),
        "age": Dense(),
        "past": Ids(40, values=3, is_history=True, shares="item"),
        "price": Dense(),
        "tags": Ids(12, values=2),
        "item": Ids(40),
    }
)
ITEM = ("item", "price", "tags")


def config(**fields: Any) -> ModelConfig:
    return ModelConfig.model_validate({"kind": "two_tower", "item": ITEM, "hidden": (16, 8), **fields})


def network(model_config: ModelConfig, inputs: Inputs = INPUTS) -> Any:
    return build(model_config, inputs, two_tower.outputs(model_config))


def rows(count: int = 7) -> dict[str, Any]:
    random = np.random.default_rng(0)
    ids = {
        name: tf.constant(random.integers(0, ids.cardinality, count if ids.values == 1 else (count, ids.values)))
        for name, ids in INPUTS.ids.items()
    }
    return {**ids, **{name: tf.constant(random.normal(size=count), tf.float32) for name in INPUTS.dense}}


@pytest.mark.parametrize("fields", [{}, {"hidden": (8,)}, {"similarity": "dot"}, {"dropout": 0.5}])
def test_each_tower_is_a_part_of_the_network(fields: dict[str, Any]) -> None:
    model_config, batch = config(**fields), rows()
    whole = network(model_config)
    towers = two_tower.vectors(whole(batch, training=False))
    np.testing.assert_array_equal(towers.ids, batch["item"])
    names = two_tower.features_of(model_config, INPUTS)
    assert (set(names["query"]), names["item"][0]) == ({"user", "age", "past"}, "item")
    for which, vector in (("query", towers.query), ("item", towers.item)):
        part = two_tower.tower(whole, which, names[which])
        assert {tensor.name for tensor in part.inputs} == set(names[which])
        alone = part({name: batch[name] for name in names[which]}, training=False)
        np.testing.assert_allclose(alone, vector, rtol=1e-5, atol=1e-6)
        lengths = np.linalg.norm(alone, axis=1)
        assert np.allclose(lengths, 1, rtol=0, atol=1e-5) is (model_config.similarity == "cosine")


def test_item_and_history_have_the_same_embeddings_and_one_table_has_all_columns() -> None:
    whole = network(config(embedding=4))
    [table] = [layer for layer in whole.layers if isinstance(layer, Table)]
    assert table.rows.shape == (9 + 40 + 12, 4)
    some = table([tf.constant([3], tf.int64), tf.constant([[3, 0, 0]], tf.int64)], columns=[3, 1]).numpy()
    np.testing.assert_array_equal(some[0, 0], some[0, 1])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(whole(rows()))
    gradient = tape.gradient(total, table.rows)
    assert isinstance(gradient, tf.IndexedSlices), "of both towers"


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_in_16_bits_vectors_and_numbers_stay_float32(policy: str) -> None:
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(policy)
    try:
        mixed = network(config())
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    batch = rows()
    output = mixed(batch)
    assert output.dtype == tf.float32
    assert {variable.dtype for variable in mixed.variables} == {tf.float32}
    whole = network(config())
    whole.set_weights(mixed.get_weights())
    np.testing.assert_allclose(output, whole(batch), atol=0.05)
    np.testing.assert_array_equal(two_tower.vectors(output).ids, batch["item"])


def test_saved_weights_give_the_same_vectors(tmp_path: Path) -> None:
    first_network, second_network = network(config()), network(config())
    first_network.save_weights(str(tmp_path / "weights"))
    second_network.load_weights(str(tmp_path / "weights")).expect_partial()
    np.testing.assert_array_equal(first_network(rows()), second_network(rows()))


@pytest.mark.parametrize("similarity", ["cosine", pytest.param("dot", marks=pytest.mark.extended)])
def test_queries_find_their_items(similarity: str) -> None:
    tf_keras.utils.set_random_seed(1)
    inputs = Inputs({"past": Ids(30, values=3, is_history=True, shares="item"), "item": Ids(30)})
    model_config = config(item=("item",), similarity=similarity, temperature=0.1 if similarity == "cosine" else 1.0)
    whole = network(model_config, inputs)
    # The item of a query is the successor of the last item in its history.
    random = np.random.default_rng(0)
    past = random.integers(1, 30, (600, 1)) * np.array([1, 1, 1])
    item = past[:, 0] % 29 + 1
    probability = np.maximum(np.bincount(item, minlength=30), 1) / len(item)
    loss = sampled_softmax(np.log(probability).astype(np.float32), model_config.temperature, 1.0)
    optimizer = tf_keras.optimizers.Adam(0.02)

    @tf.function(autograph=False)
    def step(batch: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(tf.ones_like(batch["item"]), whole(batch, training=True)))
        gradients = tape.gradient(value, whole.trainable_variables)
        optimizer.apply_gradients(zip(gradients, whole.trainable_variables, strict=True))
        return value

    for _ in range(150):
        chosen = random.integers(0, 600, 64)
        step({"past": tf.constant(past[chosen]), "item": tf.constant(item[chosen])})
    names = two_tower.features_of(model_config, inputs)
    queries = two_tower.tower(whole, "query", names["query"])({"past": tf.constant(past)})
    items = two_tower.tower(whole, "item", names["item"])({"item": tf.range(30, dtype=tf.int64)})
    nearest = tf.argmax(tf.matmul(queries, items, transpose_b=True), axis=1).numpy()
    assert (nearest == item).mean() > 0.9
