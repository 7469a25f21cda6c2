"""Tests of the Keras 3 benchmark: the rebuilt mlp computes the network that the project builds, and a NumPy mlp."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras

from benchmarks import keras3
from components.features.feature_spec import Dense, Ids
from components.models.build import build
from components.models.inputs import Inputs

INPUTS = Inputs({"a": Dense(), "b": Dense(), "x": Ids(5), "y": Ids(7)})


@pytest.mark.extended
@pytest.mark.both_lines
@pytest.mark.parametrize("reads_rows", [False, True])
def test_rebuilt_network_is_the_same_function(reads_rows: bool) -> None:
    tf_keras.utils.set_random_seed(1)
    ours = build(keras3._CONFIG, INPUTS, 1)
    table, *dense = ours.get_weights()
    rebuilt = keras3.build_mlp(INPUTS, table.shape[1], reads_rows)
    rebuilt.set_weights([table, *dense])
    random = np.random.default_rng(0)
    rows = {name: random.normal(size=20).astype(np.float32) for name in "ab"}
    rows |= {"x": random.integers(0, 5, 20), "y": random.integers(0, 7, 20)}
    hidden = np.column_stack([rows["a"], rows["b"], table[rows["x"]], table[5 + rows["y"]]])
    for kernel, bias in zip(dense[::2], dense[1::2], strict=True):
        output = hidden @ kernel + bias
        hidden = np.maximum(output, 0)
    np.testing.assert_allclose(rebuilt(rows), output, atol=1e-5)
    np.testing.assert_allclose(ours(rows), output, atol=1e-5)
