"""Interprets models whose predictions are formulas of their columns, as the Evaluator does; runs in a child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

NOISE = ("n1", "n2", "n3", "n4")
PRODUCT = {"whole": 2.0, "level": -1.0, "both": 0.5}
"""Factors of `whole`, `level` and their product in the formula `product`."""
SHIFT = {"red": 2.0, "green": -2.0, "blue": 1.0}
"""Text of the column `color` → its part of the prediction; other texts have 0."""
MISSING = -99.0
"""Number that the models read for a missing one."""


def make_table(rows: int) -> dict[str, Any]:
    """Return signals, three equal columns, noise, whole numbers, and columns with texts and with missing numbers."""
    random = np.random.default_rng(5)
    columns: dict[str, Any] = {name: random.normal(size=rows) for name in ("x1", "x2", *NOISE)}
    columns |= dict.fromkeys(("copy1", "copy2", "copy3"), random.normal(size=rows))
    columns["whole"], columns["level"] = random.integers(0, 7, rows), random.integers(0, 5, rows)
    columns["color"] = random.choice(["red", "green", "blue", *"abcdefghi"], rows, p=[0.3, 0.25, 0.18, *[0.03] * 9])
    columns["gap"] = np.where(random.random(rows) < 0.25, np.nan, random.normal(size=rows))
    columns["weight"] = np.where(random.random(rows) < 0.5, 3.0, 1.0)
    return {name: column if name == "color" else np.float32(column) for name, column in columns.items()}


def planted(columns: dict[str, Any], noise: float = 0.1) -> Any:
    """Return a signal, the median of three equal columns, and noise to which the model has overfitted."""
    one, two, three = (columns[f"copy{number}"] for number in (1, 2, 3))
    median = one + two + three - _greatest(one, two, three) + _greatest(-one, -two, -three)
    return 2 * columns["x1"] + median + noise * sum(columns[name] for name in NOISE)


def _greatest(first: Any, second: Any, third: Any) -> Any:
    greater = (first + second + abs(first - second)) / 2
    return (greater + third + abs(greater - third)) / 2


def product(columns: dict[str, Any]) -> Any:
    """Return an additive function of numbers and texts, and a product of two columns."""
    linear = sum(PRODUCT[name] * columns[name] for name in ("whole", "level"))
    colors = sum(shift * _is_equal(columns["color"], text) for text, shift in SHIFT.items())
    return linear + PRODUCT["both"] * columns["whole"] * columns["level"] + colors + 3 * columns["x1"]


def additive(columns: dict[str, Any]) -> Any:
    """Return an additive function, which is 2 for a missing number."""
    is_missing = _is_equal(columns["gap"], MISSING)
    return columns["x1"] + 2 * is_missing + (1 - is_missing) * columns["gap"] + 0.5 * columns["whole"]


def logistic(columns: dict[str, Any]) -> Any:
    """Return the log-odds of a logistic regression, which `interpret` converts to probabilities."""
    return 2 * columns["x1"] - columns["x2"] + 0.3 * columns["whole"]


def _is_equal(column: Any, value: str | float) -> Any:
    """Return 1 or 0 for every value of a tensor or an array."""
    if isinstance(column, np.ndarray):
        return (column == value).astype(np.float32)
    import tensorflow as tf

    return tf.cast(column == value, tf.float32)


def interpret(folder: Path, formula: str, rows: int, fields: dict[str, Any] | None = None) -> Any:
    """Return the importance of columns, and the partial dependence of the prediction.

    Args:
      folder: Folder for all outputs.
      formula: Name of a formula of this module.
      rows: Number of rows.
      fields: Fields of the plan.
    """
    import pyarrow as pa
    import tensorflow as tf
    import tensorflow_model_analysis as tfma

    from components.data.examples import Examples, ParquetWriter, to_lists
    from components.evaluator import partial_dependence, permutation
    from components.evaluator.plan import EvaluationPlan
    from components.evaluator.saved_model import Model

    table, predict, is_binary = make_table(rows), globals()[formula], formula == "logistic"

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
    def serve(examples: Any) -> dict[str, Any]:
        features = {
            name: tf.io.FixedLenFeature([], *((tf.string, "") if name == "color" else (tf.float32, MISSING)))
            for name in table
        }
        outputs = predict(tf.io.parse_example(examples, features))
        return {"output": tf.sigmoid(outputs) if is_binary else outputs}

    tf.saved_model.save(tf.Module(), str(folder / "model"), signatures={"serving_default": serve})
    arrays = {name: pa.array(column, from_pandas=True) for name, column in table.items()}
    arrays["label"] = pa.array(make_labels(formula, table))
    batch = to_lists(pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))
    file = ParquetWriter(str(folder / "rows.parquet"), batch.schema)
    file.write(batch)
    file.close()
    plan = EvaluationPlan.model_validate(
        {
            "evaluation": {"thresholds": {"mean_squared_error": {"max": 9}}},
            "task": "binary" if is_binary else "regression",
            "labels": [{"text": "label"}],
            "feature_columns": [name for name in table if name != "weight"],
            **(fields or {}),
        }
    )
    model = Model(str(folder / "model"), tfma.ModelSpec(signature_name="serving_default", label_key="label"), None)
    examples = Examples((str(folder / "rows.parquet"),), "parquet")
    importance = permutation.measure(examples, model, [tfma.SlicingSpec()], plan, rows)
    return importance, partial_dependence.measure(examples, model, plan, importance)


def make_labels(formula: str, table: dict[str, Any]) -> Any:
    """Return labels that depend on the formula's columns but not on noise; float32 [rows]."""
    random = np.random.default_rng(6)
    columns = {
        name: column if name == "color" else np.where(np.isnan(column), np.float32(MISSING), column)
        for name, column in table.items()
    }
    rows = len(table["x1"])
    if formula == "logistic":
        return np.float32(random.random(rows) < 1 / (1 + np.exp(-logistic(columns))))
    outputs = planted(columns, noise=0.0) if formula == "planted" else globals()[formula](columns)
    return np.float32(outputs + random.normal(0, 0.5, rows))
