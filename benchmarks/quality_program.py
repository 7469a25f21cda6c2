"""Asks an exported model for the rows of a CSV file, through its signature `raw`.

python -m benchmarks.quality_program MODEL ROWS.csv ANSWERS.npy

ANSWERS: probabilities of the label, shape [rows]; of several classes, in the order of their texts as numbers, shape
[rows, classes]; or predictions, shape [rows].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from components.trainer.probe_rows import MISSING_INT


def main(model: str, rows: str, answers: str) -> None:
    """Asks, and writes the answers."""
    signature = tf.saved_model.load(model).signatures["raw"]
    table = pd.read_csv(rows)
    _, wanted = signature.structured_input_signature
    outputs = signature(**{name: _tensor(table[name], spec.dtype) for name, spec in wanted.items()})
    if "probabilities" in outputs:
        # The model's classes stand in the order of their frequency.
        order = np.argsort(outputs["classes"][0].numpy().astype(float))
        np.save(answers, outputs["probabilities"].numpy()[:, order])
    else:
        (values,) = outputs.values()
        np.save(answers, values.numpy()[:, 0])


def _tensor(column: Any, dtype: tf.DType) -> Any:
    if dtype == tf.string:
        return tf.constant(["" if pd.isna(value) else str(value) for value in column])
    if dtype.is_integer:
        return tf.constant([MISSING_INT if pd.isna(value) else int(value) for value in column], dtype)
    return tf.constant(column.to_numpy(np.float32))


if __name__ == "__main__":
    main(*sys.argv[1:])
