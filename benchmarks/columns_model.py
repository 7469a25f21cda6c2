"""Load a SavedModel with TensorFlow alone and call every signature once, for benchmarks/columns.py.

python -m benchmarks.columns_model FOLDER

This is what each process needs that uses a model with these signatures, whoever wrote it: tf.saved_model.load, and the
first call of each signature, in which TensorFlow optimizes the graph. A run of the pipeline has two such processes: the
check of the export and the server of the serving check.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import tensorflow as tf

from benchmarks import measure

_ROWS = 2


def main() -> None:
    """Measure the model."""
    measure.report(functools.partial(call_signatures, sys.argv[1]))


def call_signatures(folder: str) -> dict[str, dict[str, Any]]:
    """Call every signature with rows of zeros, or of empty tf.Examples.

    Args:
      folder: Folder of the SavedModel.

    Returns:
      Signature → its outputs by name.
    """
    signatures = tf.saved_model.load(folder).signatures
    return {name: function(**_make_inputs(function)) for name, function in signatures.items()}


def _make_inputs(function: Any) -> dict[str, Any]:
    specs = function.structured_input_signature[1]
    return {
        name: tf.zeros([_ROWS if size is None else size for size in spec.shape], spec.dtype)
        for name, spec in specs.items()
    }


if __name__ == "__main__":
    main()
