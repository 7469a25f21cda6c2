"""Measures the importance of columns of linear models, whose importance has a closed form; runs in a child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

WEIGHTS = {"a": 3.0, "b": -1.0, "unused": 0.0}
"""Column → its weight in the prediction and the label."""
WIDE = 2.0
"""Standard deviation of column a in the group `wide`; it is 1 in the group `narrow`, as that of the others is."""


def table(rows: int) -> dict[str, Any]:
    """Return independent normal columns and two groups of equal size. The label is linear in a and b, with noise."""
    random = np.random.default_rng(2)
    columns: dict[str, Any] = {name: random.normal(size=rows) for name in WEIGHTS}
    columns["group"] = np.where(np.arange(rows) % 2, "wide", "narrow")
    columns["a"] *= np.where(columns["group"] == "wide", WIDE, 1.0)
    columns["label"] = sum(weight * columns[name] for name, weight in WEIGHTS.items()) + random.normal(0, 0.5, rows)
    columns["weight"] = np.where(columns["group"] == "wide", 1.0, 0.0)
    return columns


def measure(folder: Path, rows: int, fields: dict[str, Any]) -> Any:
    """Return the importance of a linear model's columns.

    Args:
      folder: Folder for all outputs.
      rows: Size of the sample of the 6,000 rows.
      fields: Fields of the plan.
    """
    import pyarrow as pa
    import tensorflow as tf
    import tensorflow_model_analysis as tfma

    from components.data.examples import Examples, ParquetWriter, to_lists
    from components.evaluator import permutation
    from components.evaluator.plan import EvaluationPlan
    from components.evaluator.saved_model import Model

    results = {
        name: pa.array(values) if name == "group" else pa.array(values.astype(np.float32))
        for name, values in table(6000).items()
    }
    batch = to_lists(pa.RecordBatch.from_arrays(list(results.values()), list(results)))
    file = ParquetWriter(str(folder / "rows.parquet"), batch.schema)
    file.write(batch)
    file.close()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
    def serve(examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([], tf.float32) for name in WEIGHTS})
        linear = sum(weight * parsed[name] for name, weight in WEIGHTS.items())
        return {"probability" if fields["task"] == "binary" else "prediction": linear}

    tf.saved_model.save(tf.Module(), str(folder / "model"), signatures={"serving_default": serve})
    spec = tfma.ModelSpec(signature_name="serving_default", label_key="label")
    plan = EvaluationPlan.model_validate(
        {
            "evaluation": {"thresholds": {"mean_squared_error": {"max": 9}}},
            "labels": [{"text": "label"}],
            "feature_columns": [*WEIGHTS, "group"],
            **fields,
        }
    )
    specs = [tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=["group"])]
    examples = Examples((str(folder / "rows.parquet"),), "parquet")
    return permutation.measure(examples, Model(str(folder / "model"), spec, None), specs, plan, rows)
