"""Load a SavedModel with TensorFlow alone and call every signature once, for benchmarks/columns.py.

python -m benchmarks.columns_model FOLDER

This is what each process needs that uses a model with these signatures, whoever wrote it: tf.saved_model.load, and the
first call of each signature, in which TensorFlow optimizes the graph. A run of the pipeline has two such processes: the
check of the export and the server of the serving check.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from benchmarks import measure

_ROWS = 2


def main() -> None:
    """Measure the model."""
    measure.report(functools.partial(call_signatures, sys.argv[1]))


def call_signatures(folder: str) -> dict[str, dict[str, Any]]:
    """Call every signature with rows of zeros and empty texts, or of tf.Examples that contain them.

    Args:
      folder: Folder of the SavedModel.

    Returns:
      Signature → its outputs by name.
    """
    signatures = tf.saved_model.load(folder).signatures
    columns = _get_specs(signatures["raw"]) if "raw" in signatures else {}
    example = _make_example(columns)
    return {
        name: function(**{key: _make_input(key, spec, columns, example) for key, spec in _get_specs(function).items()})
        for name, function in signatures.items()
    }


def _get_specs(function: Any) -> dict[str, tf.TensorSpec]:
    specs: dict[str, tf.TensorSpec] = function.structured_input_signature[1]
    return specs


def _make_example(columns: Mapping[str, tf.TensorSpec]) -> bytes:
    example = tf.train.Example()
    for name, spec in columns.items():
        feature = example.features.feature[name]
        if spec.dtype == tf.string:
            feature.bytes_list.value.append(b"")
        elif spec.dtype.is_integer:
            feature.int64_list.value.append(0)
        else:
            feature.float_list.value.append(0.0)
    serialized: bytes = example.SerializeToString()
    return serialized


def _make_input(name: str, spec: tf.TensorSpec, columns: Mapping[str, tf.TensorSpec], example: bytes) -> tf.Tensor:
    if name not in columns and spec.dtype == tf.string and spec.shape.rank == 1:
        return tf.constant([example] * _ROWS)
    return tf.zeros([_ROWS if size is None else size for size in spec.shape], spec.dtype)


if __name__ == "__main__":
    main()
