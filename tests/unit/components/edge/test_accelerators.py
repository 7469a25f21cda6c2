"""Tests of finding the operations of a file that accelerators do not support."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from components.edge.accelerators import find_unsupported, list_operations

pytestmark = pytest.mark.both_lines


def convert(function: Callable[..., Any]) -> bytes:
    traced = tf.function(function, input_signature=[tf.TensorSpec([1, 8])]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module())
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    return bytes(converter.convert())


@pytest.mark.parametrize(
    ("function", "operations", "unsupported"),
    [
        (lambda x: tf.sigmoid(x + 1.0), ["ADD", "LOGISTIC"], {"Edge TPU": (), "GPU delegate": ()}),
        (lambda x: tf.reduce_mean(x, axis=1), ["MEAN"], {"Edge TPU": (), "GPU delegate": ("MEAN",)}),
        (
            lambda x: tf.gather(x, [1, 3], axis=1) * 2.0,
            ["GATHER", "MUL"],
            {"Edge TPU": ("GATHER",), "GPU delegate": ("GATHER",)},
        ),
        (
            lambda x: tf.linalg.inv(tf.reshape(x[:, :4], [2, 2])),
            ["FlexMatrixInverse", "RESHAPE", "STRIDED_SLICE"],
            {"Edge TPU": ("FlexMatrixInverse",), "GPU delegate": ("FlexMatrixInverse",)},
        ),
    ],
)
def test_operations_that_an_accelerator_lacks_are_named(
    function: Callable[..., Any], operations: list[str], unsupported: dict[str, tuple[str, ...]]
) -> None:
    content = convert(function)
    assert list_operations(content) == operations
    assert find_unsupported(content) == unsupported
