"""Explains a single prediction by the contributions of its columns, which are Shapley values.

The prediction for a row is compared with the mean prediction for baseline rows. To turn a baseline row into the row,
its values are replaced one after the other. The contribution of a column is the change of the prediction when its value
is replaced, averaged over all orders of the columns and over the baseline rows. The contributions add up to the
difference between the predictions.

Shapley values are used instead of integrated gradients (M. Sundararajan, A. Taly and Q. Yan, Axiomatic attribution for
deep networks, 2017), because texts and the step functions of forests do not have gradients. The two are related:
consider the expected prediction if each column independently has the row's value with a probability t, otherwise the
baseline's value. Its integrated gradients from t = 0 to t = 1 are the Shapley values (G. Owen, Multilinear extensions
of games, Management Science 18, 1972).

Sources: L. S. Shapley, A value for n-person games, 1953. E. Štrumbelj and I. Kononenko, Explaining prediction models
and individual predictions with feature contributions, Knowledge and Information Systems 41, 2014. The mean over
baseline rows: D. Janzing, L. Minorics and P. Blöbaum, Feature relevance quantification in explainable AI: a causal
problem, 2020.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.base.names import column_name, did_you_mean

Floats: TypeAlias = npt.NDArray[np.float64]
Masks: TypeAlias = npt.NDArray[np.bool_]
_Single: TypeAlias = "int | float | str | None"
Value: TypeAlias = "_Single | tuple[_Single, ...]"

_MOST_PREDICTIONS = 1 << 14
"""Approximate number of predictions to explain a row.

Up to 14 columns and one baseline row, or 7 columns and 100 rows, this is enough for all subsets of columns. Otherwise
random orders are sampled.
"""
_FEWEST_PAIRS = 10
"""Minimum number of random orders; each is evaluated together with its reversal."""
_OUTPUTS = ("probability", "probabilities", "prediction", "score", "error")
"""Names of outputs that can be explained; see components/trainer/prediction_head.

A model with several labels appends `_LABEL` to these names. A retrieval model is explained by its score, which
determines the ranks. An anomaly model has a score and the error, whose contributions are in nats.
"""
_CLASSES = "classes"


@dataclass(frozen=True)
class Contribution:
    """The contribution of a column to a prediction.

    Attributes:
      column: Name of the column.
      value: Value in the row. None if it is missing.
      baseline: Value in the baseline row; of several rows the mean of the numbers, or the most frequent value. None if
        it is missing.
      contribution: Contribution to the prediction, in the prediction's unit.
      error: Standard error of the contribution. 0 if it was computed exactly.
    """

    column: str
    value: Value
    baseline: Value
    contribution: float
    error: float


@dataclass(frozen=True)
class RowExplanation:
    """A prediction, explained by the contributions of the columns.

    Attributes:
      output: Name of the model's output. With several classes, followed by the most probable class of the row.
      prediction: Prediction for the row.
      baseline: Prediction for the baseline row, or the mean of several.
      baseline_rows: Number of baseline rows.
      columns: Contributions of all columns, the largest first.
    """

    output: str
    prediction: float
    baseline: float
    baseline_rows: int
    columns: tuple[Contribution, ...]


class RawModel:
    """A SavedModel with a signature that takes raw columns.

    Args:
      folder: Folder of the SavedModel.

    Raises:
      InputError: The folder does not contain a SavedModel, or the model lacks the signature `raw`.
    """

    def __init__(self, folder: str) -> None:
        # Imported late because the import takes seconds.
        import tensorflow as tf

        try:
            self._model = tf.saved_model.load(folder)
        except OSError as error:
            raise InputError(
                f"{folder}: expected a SavedModel, received a folder that cannot be loaded",
                "name a run or a version with a model",
            ) from error
        if "raw" not in self._model.signatures:
            raise InputError(
                f"{folder}: expected a model with the signature raw, received "
                f"{', '.join(sorted(self._model.signatures))}",
                "explain a model of this project; models of your own run_fn have other signatures",
            )
        self._signature = self._model.signatures["raw"]
        self._specs = self._signature.structured_input_signature[1]
        self._kinds = {name: spec.dtype.name for name, spec in self._specs.items()}
        self._histories = {name for name, spec in self._specs.items() if spec.shape.rank == 2}

    @property
    def columns(self) -> dict[str, bool]:
        """Name of a column that the model reads → whether it is a history, whose value is a list."""
        return {name: name in self._histories for name in self._specs}

    def explain(
        self, row: Mapping[str, Any], baselines: Sequence[Mapping[str, Any]], output: str | None = None
    ) -> RowExplanation:
        """Explain the prediction for a row.

        Args:
          row: Values by column. A column is missing if its value is None or if the mapping lacks it.
          baselines: Values of the rows to compare with, one or more, in the same form.
          output: Name of the output to explain. If None, the model's prediction; with several labels, the prediction
            of the first label in alphabetical order.

        Raises:
          InputError: A column or the output does not exist in the model, or a value has the wrong type.
        """
        values, baseline_rows = self._parse_row(row), [self._parse_row(baseline) for baseline in baselines]
        differing = [name for name in self._specs if any(values[name] != baseline[name] for baseline in baseline_rows)]
        encoded = {
            name: self._encode_values(name, [values[name], *(row[name] for row in baseline_rows)])
            for name in self._specs
        }
        outputs = self._predict({name: cells[:1] for name, cells in encoded.items()})
        output = _choose_output(output, sorted(outputs))
        # With several classes, explain the probability of the class that is most probable for the row.
        class_index = int(outputs[output].argmax())
        class_name = f" of {outputs[_CLASSES][0, class_index].decode(errors='replace')}" if _CLASSES in outputs else ""

        def predict(masks: Masks, number: int) -> Floats:
            chosen = {name: np.where(masks[:, place], 0, number + 1) for place, name in enumerate(differing)}
            same = np.zeros(len(masks), int)
            columns = {name: cells[chosen.get(name, same)] for name, cells in encoded.items()}
            predictions: Floats = self._predict(columns)[output].reshape(len(masks), -1)[:, class_index]
            return predictions.astype(np.float64)

        none, every = np.repeat([[False], [True]], len(differing), axis=1)
        baseline_predictions = [predict(none[np.newaxis], number)[0] for number in range(len(baseline_rows))]
        contributions, errors = (
            array.tolist() for array in shapley_values(predict, len(differing), len(baseline_rows))
        )
        by_column = dict(zip(differing, zip(contributions, errors, strict=True), strict=True))
        columns = [
            Contribution(
                name, values[name], _summarize([row[name] for row in baseline_rows]), *by_column.get(name, (0.0, 0.0))
            )
            for name in self._specs
        ]
        columns.sort(key=lambda column: -abs(column.contribution))
        return RowExplanation(
            f"{output}{class_name}",
            float(predict(every[np.newaxis], 0)[0]),
            float(np.mean(baseline_predictions)),
            len(baseline_rows),
            tuple(columns),
        )

    def _predict(self, columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        import tensorflow as tf

        tensors = {name: tf.constant(values, self._specs[name].dtype) for name, values in columns.items()}
        return {name: value.numpy() for name, value in self._signature(**tensors).items()}

    def _parse_row(self, row: Mapping[str, Any]) -> dict[str, Value]:
        # Columns may have the names of the data, or those of the model.
        row = {name if name in self._specs else column_name(name): value for name, value in row.items()}
        unknown = next((name for name in row if name not in self._specs), None)
        # A row with all columns of the model cannot have a misspelled one; its other columns are ignored.
        if unknown is not None and not row.keys() >= self._specs.keys():
            raise InputError(
                f"row: the model does not read a column {unknown!r}{did_you_mean(unknown, self._specs)}",
                f"remove it; the columns are {', '.join(self._specs)}",
            )
        return {name: self._parse_value(name, row.get(name)) for name in self._specs}

    def _parse_value(self, name: str, value: Any) -> Value:
        if name in self._histories:
            events = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
            return tuple(self._parse_single(name, event) for event in events) or None
        return self._parse_single(name, value)

    def _parse_single(self, name: str, value: Any) -> _Single:
        kind = self._kinds[name]
        if value != value:  # Only NaN differs from itself. It stands for a missing value.
            value = None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is None or (kind == "string" and isinstance(value, str)) or (kind == "float32" and is_number):
            # Round to float32 as the model does, so that a value that then equals the baseline's value is recognized.
            return float(np.float32(value)) if kind == "float32" and value is not None else value or None
        if kind == "int64" and is_number and float(value).is_integer() and abs(value) < 1 << 63:
            return int(value)
        expected = {"string": "a text", "float32": "a number", "int64": "a whole number"}[kind]
        raise InputError(f"row: expected {expected} or null in column {name}, received {value!r}", "correct the value")

    def _encode_values(self, name: str, values: Sequence[Value]) -> npt.NDArray[Any]:
        """Encode values of a column for the signature.

        Args:
          name: Name of the column.
          values: Values of several rows.

        Returns:
          The values, [rows]. For a history, their events, [rows, events]; shorter histories are padded with missing
          values.
        """
        histories = [value if isinstance(value, tuple) else (value,) for value in values]
        length = max(map(len, histories))
        padded = [(*events, *[None] * (length - len(events))) for events in histories]
        encoded = np.stack([np.stack([self._encode(name, event) for event in events]) for events in padded])
        return encoded if name in self._histories else encoded[:, 0]

    def _encode(self, name: str, value: _Single) -> Any:
        """Encode a value for the signature. See components/trainer/export for the encoding of missing values."""
        if self._kinds[name] == "string":
            return np.array("" if value is None else value, object)
        if self._kinds[name] == "float32":
            return np.float32(math.nan if value is None else value)
        return np.int64(np.iinfo(np.int64).min if value is None else value)


def _summarize(values: Sequence[Value]) -> Value:
    """Return the mean of numbers, or the most frequent value; None if most values are missing."""
    present = [value for value in values if value is not None]
    if 2 * len(present) < len(values) or not present:
        return None
    if len(values) > 1 and all(isinstance(value, (int, float)) for value in present):
        return float(np.mean(present))
    return Counter(present).most_common(1)[0][0]


def _choose_output(requested: str | None, outputs: Sequence[str]) -> str:
    """Return the requested output, or the default output if None was requested."""
    predictions = [name for kind in _OUTPUTS for name in outputs if name == kind or name.startswith(f"{kind}_")]
    if requested is not None and requested not in predictions:
        raise InputError(
            f"--prediction: the model does not have a prediction {requested!r}{did_you_mean(requested, predictions)}",
            f"name one of {', '.join(predictions)}",
        )
    return requested or predictions[0]


def shapley_values(predict: Callable[[Masks, int], Floats], columns: int, baselines: int = 1) -> tuple[Floats, Floats]:
    """Compute Shapley values, exactly for few columns, otherwise from random orders and their reversals.

    Errors from interactions between two columns cancel between an order and its reversal (antithetic sampling). The
    estimated values add up to the difference between the predictions, as exact values do. Source: R. Mitchell, J.
    Cooper, E. Frank and G. Holmes, Sampling permutations for Shapley value estimation, 2022.

    Args:
      predict: Function that returns predictions, float64 [n], for masks, bool [n, columns], and the number of a
        baseline row. A mask is True where a column has the row's value, and False where it has the baseline row's.
      columns: Number of columns.
      baselines: Number of baseline rows, over which the values are averaged.

    Returns:
      The Shapley values and their standard errors, both float64 [columns].
    """
    if columns == 0:
        return np.empty(0), np.empty(0)
    if baselines << columns <= _MOST_PREDICTIONS:
        values = [_compute_exactly(_select_baseline(predict, number), columns) for number in range(baselines)]
        return np.mean(values, axis=0), np.zeros(columns)
    pairs = max(_FEWEST_PAIRS, _MOST_PREDICTIONS // (2 * (columns + 1)))
    # Use each baseline row equally often, so that the values add up exactly.
    pairs = baselines * max(1, pairs // baselines)
    random = np.random.default_rng(0)
    estimates = np.empty((pairs // baselines, baselines, columns))
    for number in range(baselines):
        of_baseline = _select_baseline(predict, number)
        for estimate in estimates[:, number]:
            order = random.permutation(columns)
            estimate[:] = (_compute_changes(of_baseline, order) + _compute_changes(of_baseline, order[::-1])) / 2
    # The baseline rows are given, so their differences do not count as errors. With one order per row, the two cannot
    # be distinguished.
    by_baseline = estimates if len(estimates) > 1 else estimates.reshape(pairs, 1, columns)
    variances = by_baseline.var(axis=0, ddof=1).mean(axis=0)
    return estimates.mean(axis=(0, 1)), np.sqrt(variances / pairs)


def _select_baseline(predict: Callable[[Masks, int], Floats], number: int) -> Callable[[Masks], Floats]:
    return lambda masks: predict(masks, number)


def _compute_exactly(predict: Callable[[Masks], Floats], columns: int) -> Floats:
    # Bit i of a subset's number says whether the subset contains column i.
    subsets = np.arange(1 << columns)
    masks = (subsets[:, np.newaxis] >> np.arange(columns)) & 1 == 1
    predictions, sizes = predict(masks), masks.sum(axis=1)
    # Weight of a subset by its size: the share of orders in which exactly its columns precede a given other column.
    weights = np.array([1 / (columns * math.comb(columns - 1, size)) for size in range(columns)])
    values = np.empty(columns)
    for column in range(columns):
        without = subsets[~masks[:, column]]
        values[column] = (weights[sizes[without]] * (predictions[without | 1 << column] - predictions[without])).sum()
    return values


def _compute_changes(predict: Callable[[Masks], Floats], order: npt.NDArray[np.int64]) -> Floats:
    """Return how each column changes the prediction if the columns are replaced in an order, [columns]."""
    # Row i of the masks has True for the first i columns of the order.
    masks = np.tril(np.ones((len(order) + 1, len(order)), bool), -1)
    differences = np.empty(len(order))
    differences[order] = np.diff(predict(masks[:, np.argsort(order)]))
    return differences


def parse_rows(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Parse rows that are written as JSON objects, one per line. Empty lines are skipped.

    Raises:
      InputError: A line is not a JSON object.
    """
    import json

    rows = []
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            row = error
        if not isinstance(row, dict):
            raise InputError(
                f"row {number}: expected a JSON object of columns and values, received {text.strip()[:60]!r}",
                """write it as '{"fare": 12.5, "payment_type": "Cash"}'""",
            )
        rows.append(row)
    return rows
