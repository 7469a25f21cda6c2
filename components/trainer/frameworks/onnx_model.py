"""A network in the ONNX format as a layer: its operations are standard TensorFlow operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from components.base.errors import InputError
from components.models.forest import MatrixLayer, matrix
from components.models.inputs import Inputs
from components.trainer.frameworks import onnx_format
from components.trainer.frameworks.training_data import TrainingData

Operation: TypeAlias = Callable[..., Any]
"""(inputs of a node, keyword arguments named after its attributes) → its first output. A missing input is None."""

_DTYPES = {1: tf.float32, 6: tf.int32, 7: tf.int64, 9: tf.bool, 11: tf.float64}


def _gemm(a: Any, b: Any, c: Any = None, alpha: float = 1.0, beta: float = 1.0, **transpose: int) -> Any:
    transposed_a, transposed_b = (bool(transpose.get(name)) for name in ("transA", "transB"))
    product = alpha * tf.matmul(a, b, transpose_a=transposed_a, transpose_b=transposed_b)
    return product if c is None else product + beta * c


def _reshape(values: Any, shape: Any, allowzero: int = 0) -> Any:
    if tf.get_static_value(shape) is None:
        return tf.reshape(values, shape)
    # 0 keeps the size of a dimension.
    sizes = [tf.shape(values)[axis] if size == 0 and not allowzero else size for axis, size in enumerate(_ints(shape))]
    return tf.reshape(values, tf.stack(sizes))


def _flatten(values: Any, axis: int = 1) -> Any:
    rows = tf.reduce_prod(tf.shape(values)[:axis])
    width = np.prod(values.shape[axis:].as_list()) if values.shape[axis:].is_fully_defined() else -1
    return tf.reshape(values, tf.stack([rows, width]))


def _unsqueeze(values: Any, axes: Any) -> Any:
    rank = len(values.shape) + len(_ints(axes))
    for axis in sorted(axis % rank for axis in _ints(axes)):
        values = tf.expand_dims(values, axis)
    return values


def _slice(values: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends = _ints(starts), _ints(ends)
    cuts = [slice(None)] * len(values.shape)
    for number, axis in enumerate(range(len(starts)) if axes is None else _ints(axes)):
        step = 1 if steps is None else _ints(steps)[number]
        # Very large numbers stand for the end.
        cuts[axis] = slice(starts[number], None if ends[number] > _INT32 else ends[number], step)
    return values[tuple(cuts)]


def _layer_normalization(
    values: Any, scale: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, **_precision: int
) -> Any:
    axes = list(range(axis % len(values.shape), len(values.shape)))
    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    return tf.nn.batch_normalization(values, mean, variance, bias, scale, epsilon)


def _batch_normalization(
    values: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float = 1e-5, **_training: Any
) -> Any:
    shape = [1, -1] + [1] * (len(values.shape) - 2)
    mean, variance, bias, scale = (tf.reshape(part, shape) for part in (mean, variance, bias, scale))
    return tf.nn.batch_normalization(values, mean, variance, bias, scale, epsilon)


def _reduce(function: Callable[..., Any]) -> Operation:
    def reduce(values: Any, axes_input: Any = None, axes: Any = None, keepdims: int = 1, **_options: Any) -> Any:
        chosen = axes if axes_input is None else _ints(axes_input)
        return function(values, axis=chosen or None, keepdims=bool(keepdims))

    return reduce


def _squeeze(values: Any, axes_input: Any = None, axes: Any = None) -> Any:
    return tf.squeeze(values, axes if axes_input is None else _ints(axes_input))


def _clip(values: Any, low: Any = None, high: Any = None) -> Any:
    values = values if low is None else tf.maximum(values, low)
    return values if high is None else tf.minimum(values, high)


def _gelu(values: Any, approximate: bytes = b"none") -> Any:
    return tf.nn.gelu(values, approximate=approximate == b"tanh")


def _ints(values: Any) -> list[int]:
    """Return the numbers of a tensor that is known when the model is exported."""
    constant = tf.get_static_value(values)
    if constant is None:
        raise ValueError("a shape that depends on the rows")
    return [int(number) for number in np.ravel(constant)]


_INT32 = 2**31 - 1
_OPERATIONS: Mapping[str, Operation] = {
    "Add": tf.add,
    "Sub": tf.subtract,
    "Mul": tf.multiply,
    "Div": tf.divide,
    "Pow": tf.pow,
    "Neg": tf.negative,
    "Abs": tf.abs,
    "Exp": tf.exp,
    "Log": tf.math.log,
    "Sqrt": tf.sqrt,
    "Erf": tf.math.erf,
    "Identity": tf.identity,
    "Relu": tf.nn.relu,
    "Sigmoid": tf.sigmoid,
    "Tanh": tf.tanh,
    "Softplus": tf.nn.softplus,
    "Gelu": _gelu,
    "Max": tf.maximum,
    "Min": tf.minimum,
    "Clip": _clip,
    "MatMul": tf.matmul,
    "Gemm": _gemm,
    "Elu": lambda values, alpha=1.0: tf.where(values > 0, values, alpha * tf.math.expm1(values)),
    "Selu": lambda values: tf.nn.selu(values),
    "LeakyRelu": lambda values, alpha=0.01: tf.nn.leaky_relu(values, alpha),
    "PRelu": lambda values, slope: tf.where(values >= 0, values, values * slope),
    "HardSigmoid": lambda values, alpha=0.2, beta=0.5: tf.clip_by_value(alpha * values + beta, 0.0, 1.0),
    "Softmax": lambda values, axis=-1: tf.nn.softmax(values, axis),
    "LogSoftmax": lambda values, axis=-1: tf.nn.log_softmax(values, axis),
    "Cast": lambda values, to=1, **_: tf.cast(values, _DTYPES[to]),
    "Concat": lambda *values, axis=0: tf.concat(values, axis),
    "Gather": lambda table, ids, axis=0: tf.gather(table, ids, axis=axis),
    "Transpose": lambda values, perm=None: tf.transpose(values, perm),
    "Dropout": lambda values, *_, **__: values,
    "Constant": lambda value=None, **_: tf.constant(value),
    "Shape": lambda values, **_: tf.shape(values, tf.int64),
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "ReduceMean": _reduce(tf.reduce_mean),
    "ReduceSum": _reduce(tf.reduce_sum),
    "ReduceMax": _reduce(tf.reduce_max),
    "LayerNormalization": _layer_normalization,
    "BatchNormalization": _batch_normalization,
}
"""Operation of ONNX → the function that computes it."""


class OnnxLayer(MatrixLayer):
    """Computes the first output of an ONNX model.

    Input: transformed features by name. Output: the model's output.

    Args:
      content: The model.
      data: The columns of numbers.
      features: The transformed features.

    Raises:
      InputError: If the model cannot be read, or has an operation that is not converted.
    """

    def __init__(self, content: bytes, data: TrainingData, features: Inputs) -> None:
        super().__init__(data.inputs, name="onnx")
        self._graph, self._features = onnx_format.parse(content), features
        unknown = sorted({node.op_type for node in self._graph.node} - _OPERATIONS.keys())
        if unknown:
            raise InputError(
                f"model.train: expected an ONNX model of the operations {', '.join(sorted(_OPERATIONS))}; received "
                f"{', '.join(unknown)}",
                "replace these operations, or return a TensorFlowModel",
            )
        self._initial: dict[str, Any] = {}
        for tensor in self._graph.initializer:
            values = onnx_format.read_tensor(tensor)
            # Integers are shapes and axes, which have to be known when the model is exported.
            is_weight = values.dtype.kind == "f" and values.ndim > 0
            self._initial[tensor.name] = self._add_weight(tensor.name, values) if is_weight else tf.constant(values)

    def _add_weight(self, name: str, values: Any) -> tf.Variable:
        return self.add_weight(
            name.replace(".", "_").replace("/", "_").strip("_"),
            values.shape,
            values.dtype,
            initializer=lambda *_, **__: tf.constant(values),
            trainable=False,
        )

    def call(self, features: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Compute the nodes of the graph in their order."""
        values: dict[str, Any] = {name: tf.convert_to_tensor(value) for name, value in self._initial.items()}
        for graph_input in self._graph.input:
            name = graph_input.name
            if name not in values:
                values[name] = features[name] if name in self._features.features else matrix(self._inputs, features)
        for node in self._graph.node:
            inputs = [values[name] if name else None for name in node.input]
            try:
                result = _OPERATIONS[node.op_type](*inputs, **onnx_format.read_attributes(node))
            except (TypeError, ValueError, KeyError, tf.errors.InvalidArgumentError) as error:
                raise InputError(
                    f"model.train: expected an operation that can be converted, received {node.op_type} of the output "
                    f"{node.output[0]!r}: {error}",
                    "change this layer, or return a TensorFlowModel",
                ) from error
            values[node.output[0]] = result
        return values[self._graph.output[0].name]
