"""The contribution of each column to a single prediction, by Shapley values.

A prediction is compared with that of a baseline row. A column's contribution is the mean difference that its value
makes, over all orders in which the baseline's values are replaced one by one by those of the row (L. S. Shapley, A
value for n-person games, 1953; of predictions: E. Štrumbelj and I. Kononenko, Explaining prediction models and
individual predictions with feature contributions, Knowledge and Information Systems 41, 2014). The contributions add up
to the difference of the two predictions.

Integrated gradients (M. Sundararajan, A. Taly and Q. Yan, Axiomatic attribution for deep networks, 2017) need gradients
by the columns, which texts and the steps of a forest do not have. Along the straight line from the baseline to the row,
the integrated gradients of the model's multilinear extension, in which each column has the row's value with a
probability, are the Shapley values (G. Owen, Multilinear extensions of games, Management Science 18, 1972).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from components.errors import InputError
from components.names import did_you_mean

Floats: TypeAlias = npt.NDArray[np.float64]
Masks: TypeAlias = npt.NDArray[np.bool_]
_Single: TypeAlias = "int | float | str | None"
Value: TypeAlias = "_Single | tuple[_Single, ...]"

_MOST = 1 << 14
"""Number of predictions for a row: up to 14 columns, all sets of columns; with more, as many random orders."""
_FEWEST_PAIRS = 10
_OUTPUTS = ("probability", "probabilities", "prediction", "score")
"""Names of the output that is the prediction, to which those of several labels add `_LABEL`; of a retrieval it is the
score, from which the ranks follow; see components/trainer/prediction_head."""
_CLASSES = "classes"


@dataclass(frozen=True)
class Contribution:
    """What a column adds to a prediction.

    Attributes:
      column: its name.
      value: in the row; None: missing.
      baseline: in the baseline row.
      contribution: in the unit of the prediction.
      error: the standard error, if random orders were used; else 0.
    """

    column: str
    value: Value
    baseline: Value
    contribution: float
    error: float


@dataclass(frozen=True)
class RowExplanation:
    """A prediction and what it is made of.

    Attributes:
      output: the name of the model's output; of several classes, with the most probable one of the row.
      prediction: for the row.
      baseline: for the baseline row.
      columns: with the largest contributions first.
    """

    output: str
    prediction: float
    baseline: float
    columns: tuple[Contribution, ...]


class RawModel:
    """A SavedModel that takes raw columns.

    Args:
      folder: of the SavedModel.

    Raises:
      InputError: there is no such model, or it has no signature `raw`.
    """

    def __init__(self, folder: str) -> None:
        # Imported late: it takes seconds.
        import tensorflow as tf

        try:
            self._model = tf.saved_model.load(folder)
        except OSError as error:
            raise InputError(
                f"{folder}: expected a SavedModel, received none that loads", "name a run or a version that has one"
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

    def explain(self, row: Mapping[str, Any], baseline: Mapping[str, Any], output: str | None = None) -> RowExplanation:
        """Explains the prediction for a row.

        Args:
          row: column → value; one that is None or not there is missing.
          baseline: the row that it is compared with, likewise.
          output: what is explained; None: the prediction, of several labels the first one by name.

        Raises:
          InputError: a column is none of the model's, a value does not fit it, or there is no such output.
        """
        values, others = (self._row(each) for each in (row, baseline))
        differing = [name for name in self._specs if values[name] != others[name]]
        pairs = {name: self._pair(name, values[name], others[name]) for name in self._specs}
        outputs = self._predict({name: pair[:1] for name, pair in pairs.items()})
        output = _chosen(output, sorted(outputs))
        # Of several classes, the most probable one.
        at = int(outputs[output].argmax())
        class_name = f" of {outputs[_CLASSES][0, at].decode(errors='replace')}" if _CLASSES in outputs else ""

        def predict(masks: Masks) -> Floats:
            columns = {name: pair[np.ones(len(masks), int)] for name, pair in pairs.items()}
            for number, name in enumerate(differing):
                columns[name] = pairs[name][np.where(masks[:, number], 0, 1)]
            found: Floats = self._predict(columns)[output].reshape(len(masks), -1)[:, at].astype(np.float64)
            return found

        ends = predict(np.repeat([[False], [True]], len(differing), axis=1))
        found, errors = (each.tolist() for each in shapley_values(predict, len(differing)))
        of_column = dict(zip(differing, zip(found, errors, strict=True), strict=True))
        columns = [
            Contribution(name, values[name], others[name], *of_column.get(name, (0.0, 0.0))) for name in self._specs
        ]
        columns.sort(key=lambda each: -abs(each.contribution))
        return RowExplanation(f"{output}{class_name}", ends[1].item(), ends[0].item(), tuple(columns))

    def _predict(self, columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        import tensorflow as tf

        tensors = {name: tf.constant(values, self._specs[name].dtype) for name, values in columns.items()}
        return {name: value.numpy() for name, value in self._signature(**tensors).items()}

    def _row(self, row: Mapping[str, Any]) -> dict[str, Value]:
        unknown = next((name for name in row if name not in self._specs), None)
        if unknown is not None:
            raise InputError(
                f"row: the model reads no column {unknown!r}{did_you_mean(unknown, self._specs)}",
                f"remove it; the columns are {', '.join(self._specs)}",
            )
        return {name: self._value(name, row.get(name)) for name in self._specs}

    def _value(self, name: str, value: Any) -> Value:
        if name in self._histories:
            events = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
            return tuple(self._single_value(name, each) for each in events) or None
        return self._single_value(name, value)

    def _single_value(self, name: str, value: Any) -> _Single:
        kind = self._kinds[name]
        if value != value:
            value = None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is None or (kind == "string" and isinstance(value, str)) or (kind == "float32" and is_number):
            # Equal to what the model reads, so that a column with the baseline's value is recognized.
            return float(np.float32(value)) if kind == "float32" and value is not None else value or None
        if kind == "int64" and is_number and float(value).is_integer() and abs(value) < 1 << 63:
            return int(value)
        expected = {"string": "a text", "float32": "a number", "int64": "a whole number"}[kind]
        raise InputError(f"row: expected {expected} or null in column {name}, received {value!r}", "correct the value")

    def _pair(self, name: str, value: Value, other: Value) -> npt.NDArray[Any]:
        """Returns the values of the row and of the baseline as the signature takes them, [2] or [2, events]."""
        both = [each if isinstance(each, tuple) else (each,) for each in (value, other)]
        most = max(map(len, both))
        equal = [(*each, *[None] * (most - len(each))) for each in both]
        encoded = np.stack([np.stack([self._encoded(name, one) for one in each]) for each in equal])
        return encoded if name in self._histories else encoded[:, 0]

    def _encoded(self, name: str, value: _Single) -> Any:
        """Returns a value as the signature takes it; see components/trainer/export."""
        if self._kinds[name] == "string":
            return np.array("" if value is None else value, object)
        if self._kinds[name] == "float32":
            return np.float32(math.nan if value is None else value)
        return np.int64(np.iinfo(np.int64).min if value is None else value)


def _chosen(wanted: str | None, outputs: Sequence[str]) -> str:
    found = [name for kind in _OUTPUTS for name in outputs if name == kind or name.startswith(f"{kind}_")]
    if wanted is not None and wanted not in found:
        raise InputError(
            f"--prediction: the model has no prediction {wanted!r}{did_you_mean(wanted, found)}",
            f"name one of {', '.join(found)}",
        )
    return wanted or found[0]


def shapley_values(predict: Callable[[Masks], Floats], columns: int) -> tuple[Floats, Floats]:
    """Computes Shapley values: exactly up to 14 columns, otherwise by random orders and their reversals.

    An order and its reversal have opposite errors for pairs of columns (antithetic sampling: R. Mitchell, J. Cooper, E.
    Frank and G. Holmes, Sampling permutations for Shapley value estimation, 2022). Also these values add up.

    Args:
      predict: which columns have the row's value, [n, columns] → predictions, [n].
      columns: their number.

    Returns:
      The values and their standard errors, [columns].
    """
    if columns == 0:
        return np.empty(0), np.empty(0)
    if 1 << columns <= _MOST:
        return _exact(predict, columns), np.zeros(columns)
    pairs = max(_FEWEST_PAIRS, _MOST // (2 * (columns + 1)))
    random = np.random.default_rng(0)
    each = []
    for _ in range(pairs):
        order = random.permutation(columns)
        each.append((_along(predict, order) + _along(predict, order[::-1])) / 2)
    return np.mean(each, axis=0), np.std(each, axis=0, ddof=1) / math.sqrt(pairs)


def _exact(predict: Callable[[Masks], Floats], columns: int) -> Floats:
    sets = np.arange(1 << columns)
    masks = (sets[:, np.newaxis] >> np.arange(columns)) & 1 == 1
    predictions, sizes = predict(masks), masks.sum(axis=1)
    # Share of the orders in which exactly these columns come before a further one.
    share = np.array([1 / (columns * math.comb(columns - 1, size)) for size in range(columns)])
    found = np.empty(columns)
    for column in range(columns):
        without = sets[~masks[:, column]]
        found[column] = (share[sizes[without]] * (predictions[without | 1 << column] - predictions[without])).sum()
    return found


def _along(predict: Callable[[Masks], Floats], order: npt.NDArray[np.int64]) -> Floats:
    """Returns the difference that each column makes in an order."""
    masks = np.tril(np.ones((len(order) + 1, len(order)), bool), -1)
    differences = np.empty(len(order))
    differences[order] = np.diff(predict(masks[:, np.argsort(order)]))
    return differences


def parse_rows(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Parses rows, each a JSON object on one line; empty lines are left out.

    Raises:
      InputError: a line is no JSON object.
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
