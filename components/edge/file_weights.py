"""Count the zeros and the distinct weights in a TensorFlow Lite file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class FileWeights(NamedTuple):
    """Statistics of the weights of dense and convolutional layers.

    Attributes:
      sparsity: Share of the weights that are 0, from 0 to 1.
      distinct: Maximum number of distinct weights in a layer.
    """

    sparsity: float
    distinct: int


def read(content: bytes) -> FileWeights | None:
    """Read the weights of a file; return None if it does not contain dense or convolutional layers.

    Args:
      content: Content of the file.
    """
    arrays = _read_arrays(content)
    if not arrays:
        return None
    zeros = sum(int(np.sum(weights == 0)) for weights in arrays)
    sparsity = zeros / sum(weights.size for weights in arrays)
    return FileWeights(sparsity, max(len(np.unique(weights)) for weights in arrays))


def _read_arrays(content: bytes) -> list[npt.NDArray[Any]]:
    """Return the weights of every dense and convolutional layer; [weights] each."""
    # Imported here because every process that compiles a pipeline imports this module.
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
        # float16 weights are converted to float32 by an operation of the graph: map its output back to the weights.
        dequantized = {
            operation.outputs[0]: operation.inputs[0]
            for operation in graph.operators
            if codes[operation.opcodeIndex] == operator.DEQUANTIZE
        }
        for operation in graph.operators:
            if codes[operation.opcodeIndex] in with_weights:
                weight_index = operation.inputs[1]
                tensor = graph.tensors[dequantized.get(weight_index, weight_index)]
                data = model.buffers[tensor.buffer].data
                if data is not None and tensor.type in dtypes:
                    arrays.append(np.asarray(data, np.uint8).view(dtypes[tensor.type]))
    return arrays
