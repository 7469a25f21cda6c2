"""Predict the rows of a CSV file with an exported model, through its signature `raw`.

python -m benchmarks.clicks_program MODEL ROWS.csv ANSWERS.npy

ANSWERS: probabilities of the label, shape [rows].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from components.trainer.probe_rows import MISSING_INT


def main(model: str, rows: str, answers: str) -> None:
    """Predict, and write the probabilities."""
    signature = tf.saved_model.load(model).signatures["raw"]
    table = pd.read_csv(rows)
    _, inputs = signature.structured_input_signature
    outputs = signature(**{name: _tensor(table[name], spec.dtype) for name, spec in inputs.items()})
    np.save(answers, outputs["probability"].numpy()[:, 0])


def _tensor(column: Any, dtype: tf.DType) -> Any:
    if dtype == tf.string:
        return tf.constant(["" if pd.isna(value) else str(value) for value in column])
    if dtype.is_integer:
        return tf.constant([MISSING_INT if pd.isna(value) else int(value) for value in column], dtype)
    return tf.constant(column.to_numpy(np.float32))


if __name__ == "__main__":
    main(*sys.argv[1:])
