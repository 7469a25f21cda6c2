"""Apply a function that needs much memory per row to a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf


def in_parts(
    size: int,
    predict: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
    rows: Mapping[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Apply a function to a few rows at a time.

    Args:
      size: Maximum number of rows of a part.
      predict: Function from the inputs of a part to its outputs by name; both of shape [rows of the part, …].
      rows: Input name → tensor of shape [rows, …]; at least one input.

    Returns:
      The outputs of all rows.
    """
    count = tf.shape(next(iter(rows.values())))[0]
    # An empty batch is a single empty part.
    parts = tf.maximum(1, -(-count // size))

    # Trace the function once. Its concrete function gives the specs of the outputs.
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])  # type: ignore[untyped-decorator]
    def part(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return predict({name: values[number * size : (number + 1) * size] for name, values in rows.items()})

    specs = {
        name: tf.TensorSpec([None, *output.shape[1:]], output.dtype)
        for name, output in part.get_concrete_function().structured_outputs.items()
    }

    def body(number: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
        outputs = part(number)
        return number + 1, {name: array.write(number, outputs[name]) for name, array in arrays.items()}

    arrays = {
        name: tf.TensorArray(spec.dtype, parts, infer_shape=False, element_shape=spec.shape)
        for name, spec in specs.items()
    }
    _, arrays = tf.while_loop(lambda number, _: number < parts, body, [tf.constant(0), arrays], parallel_iterations=1)
    return {name: tf.ensure_shape(arrays[name].concat(), spec.shape) for name, spec in specs.items()}
