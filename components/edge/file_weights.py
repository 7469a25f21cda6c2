"""What a TensorFlow Lite file has of zeros and of distinct weights, read from the file itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class FileWeights(NamedTuple):
    """The weights of dense and convolutional layers.

    Attributes:
      sparsity: the share of those that are 0.
      distinct: the greatest number of distinct values in a layer.
    """

    sparsity: float
    distinct: int


def read(content: bytes) -> FileWeights | None:
    """Reads a file; returns None if it has no such layer.

    Args:
      content: of the file.
    """
    arrays = _weights(content)
    if not arrays:
        return None
    zeros = sum(int(np.sum(each == 0)) for each in arrays)
    return FileWeights(zeros / sum(each.size for each in arrays), max(len(np.unique(each)) for each in arrays))


def _weights(content: bytes) -> list[npt.NDArray[Any]]:
    # Late: every process that compiles a pipeline imports this module.
    from ai_edge_litert import schema_py_generated as schema

    dtypes = {
        schema.TensorType.FLOAT32: np.float32,
        schema.TensorType.FLOAT16: np.float16,
        schema.TensorType.INT8: np.int8,
    }
    operator = schema.BuiltinOperator
    with_weights = (operator.CONV_2D, operator.DEPTHWISE_CONV_2D, operator.FULLY_CONNECTED)
    model = schema.ModelT.InitFromPackedBuf(content)
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes]
    arrays = []
    for graph in model.subgraphs:
        # The float16 weights of a file are converted to float32 by an operation of its graph.
        converted = {
            each.outputs[0]: each.inputs[0]
            for each in graph.operators
            if codes[each.opcodeIndex] == operator.DEQUANTIZE
        }
        for each in graph.operators:
            if codes[each.opcodeIndex] in with_weights:
                tensor = graph.tensors[converted.get(each.inputs[1], each.inputs[1])]
                data = model.buffers[tensor.buffer].data
                if data is not None and tensor.type in dtypes:
                    arrays.append(np.asarray(data, np.uint8).view(dtypes[tensor.type]))
    return arrays
