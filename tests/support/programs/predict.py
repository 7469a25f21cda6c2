"""Loads a pushed model like a server, with TensorFlow alone, and sends it requests; run as a separate process.

    python predict.py MODEL < asked.json > answers.json

asked: `examples`, serialized tf.Examples in base64; `unlabelled`, the same without the label's column; `columns`, the
same as named raw features, column → values, None where one is missing.
answers: `signatures` (name → its inputs), `variables` (name → shape), and the answers of `serving_default`,
`raw`, `transform_features` and `transform_labels`, each output a list with an entry per row.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf


def main(folder: str, rows: dict[str, Any]) -> dict[str, Any]:
    """Call every signature of the model in a folder."""
    model = tf.saved_model.load(folder)
    inputs = {name: signature.structured_input_signature[1] for name, signature in model.signatures.items()}
    answers: dict[str, Any] = {
        "signatures": {name: sorted(tensors) for name, tensors in inputs.items()},
        "variables": dict(tf.train.list_variables(f"{folder}/variables/variables")),
    }
    # The signature of edge variants takes transformed features.
    for name in inputs.keys() - {"transformed"}:
        arguments = _columns(rows["columns"], inputs[name]) if name == "raw" else {"examples": _examples(rows, name)}
        answers[name] = {key: _plain(value) for key, value in model.signatures[name](**arguments).items()}
    return answers


def _examples(rows: dict[str, Any], signature: str) -> Any:
    serialized = rows["examples" if signature == "transform_labels" else "unlabelled"]
    return tf.constant([base64.b64decode(value) for value in serialized])


def _columns(columns: dict[str, list[Any]], specs: dict[str, Any]) -> dict[str, Any]:
    """Convert values of rows to tensors; None becomes the missing value that components/trainer/export.py defines."""
    missing = {tf.string: "", tf.int64: tf.int64.min}
    return {
        name: tf.constant([missing.get(spec.dtype, np.nan) if v is None else v for v in columns[name]], spec.dtype)
        for name, spec in specs.items()
    }


def _plain(tensor: Any) -> list[Any]:
    if tensor.dtype == tf.string:
        return np.char.decode(tensor.numpy().astype(bytes)).tolist()  # type: ignore[no-any-return]
    return tensor.numpy().tolist()  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], json.load(sys.stdin))) + "\n")
