"""Find the operations of a TensorFlow Lite file that accelerators do not support.

An accelerator computes only operations of its list; the interpreter computes the others on the CPU, and copies between
both. The lists name the operations, which may have further conditions, such as constant shapes or int8 tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

_EDGE_TPU = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXPAND_DIMS FULLY_CONNECTED L2_NORMALIZATION LOGISTIC
    LSTM MAXIMUM MAX_POOL_2D MEAN MINIMUM MUL PACK PAD PRELU QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1
    RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SLICE SOFTMAX SPACE_TO_DEPTH SPLIT SQUARED_DIFFERENCE SQUEEZE
    STRIDED_SLICE SUB SUM TANH TRANSPOSE TRANSPOSE_CONV
"""
# Source: https://developer.axis.com/computer-vision/on-device/system-on-chip/artpec-7/supported-ops, read in 2026.
_GPU = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXP FULLY_CONNECTED LOGICAL_AND LOGISTIC LSTM
    MAX_POOL_2D MAXIMUM MINIMUM MUL PAD PRELU RELU RELU6 RESHAPE RESIZE_BILINEAR SOFTMAX STRIDED_SLICE SUB
    TRANSPOSE_CONV
"""
# Source: tensorflow/lite/g3doc/performance/gpu.md of TensorFlow, for float16 and float32.
_SUPPORTED: Mapping[str, frozenset[str]] = {
    "Edge TPU": frozenset(_EDGE_TPU.split()),
    "GPU delegate": frozenset(_GPU.split()),
}


def list_operations(content: bytes) -> list[str]:
    """Return the distinct names of a file's operations, such as FULLY_CONNECTED.

    Args:
      content: Content of the file.
    """
    # Imported here because every process that compiles a pipeline imports this module.
    from ai_edge_litert import schema_py_generated as schema

    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model = schema.ModelT.InitFromPackedBuf(content)
    used = {operation.opcodeIndex for graph in model.subgraphs for operation in graph.operators}
    codes = [model.operatorCodes[index] for index in used]
    # An operation that is not built in has a name in place of a code.
    return sorted(
        code.customCode.decode() if code.customCode else names[max(code.builtinCode, code.deprecatedBuiltinCode)]
        for code in codes
    )


def find_unsupported(content: bytes) -> dict[str, tuple[str, ...]]:
    """Return accelerator → operations of a file that it does not support.

    Args:
      content: Content of the file.
    """
    operations = list_operations(content)
    return {
        accelerator: tuple(name for name in operations if name not in supported)
        for accelerator, supported in _SUPPORTED.items()
    }
