"""Tests of counting zeros and distinct weights in a TensorFlow Lite file, for float32 and float16 weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from components.edge import file_weights
from tests.support.data.tolerances import float64_sum

pytestmark = pytest.mark.both_lines

WEIGHTS = np.tile(np.array([0, 0, 0, 1.5, -1.5], np.float32), (40, 10))


def convert_model(float16: bool) -> bytes:
    function = tf.function(lambda x: x @ WEIGHTS, input_signature=[tf.TensorSpec([1, 40])])
    module = tf.Module()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], module)
    if float16:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    return bytes(converter.convert())


@pytest.mark.parametrize("float16", [False, True])
def test_zeros_and_distinct_weights_are_counted(float16: bool) -> None:
    weights = file_weights.read(convert_model(float16))
    assert weights is not None
    assert weights.sparsity == float64_sum(1).approx(0.6)
    assert weights.distinct == 3
