"""The floor of `benchmarks.columns`: one program without a pipeline, from a CSV file to a SavedModel.

    python -m benchmarks.columns_program TABLE LABEL STEPS BATCH BINS MODEL

It reads the table, splits it by row, computes the statistics of every column, standardizes the numbers and finds the
ids of the texts, trains a network for some steps, evaluates it on a fifth of the rows, and saves a SavedModel whose
signature takes one tensor per column. With BINS, the network's first layer expands each number into that many pieces
between its quantiles, as `piecewise_linear` does. All rows are in memory. Prints the measurement without imports.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute, csv

from benchmarks import measure

Array: TypeAlias = "npt.NDArray[Any]"
_QUANTILES = 1_001
_VOCABULARY, _WIDTH = 20_000, 16
"""Values of a vocabulary, and numbers of an embedding."""
_HIDDEN = (64, 32)


class Columns(NamedTuple):
    """A table as arrays.

    Attributes:
      names: The names of the numeric columns, then of the columns of text.
      numbers: float32, [numeric columns, rows]; NaN where missing.
      texts: The columns of text.
      label: float32, [rows], 0 or 1.
    """

    names: tuple[list[str], list[str]]
    numbers: Array
    texts: list[pa.ChunkedArray]
    label: Array


class Scales(NamedTuple):
    """Mean and standard deviation, [columns], and quantiles, [columns, quantiles], of the training split; float32."""

    mean: Array
    deviation: Array
    quantiles: Array


def main() -> None:
    """Measure the work."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tf_keras  # noqa: F401 - an import is not part of the work

    tf.config.threading.set_inter_op_parallelism_threads(2)
    table, label, *numbers, model = sys.argv[1:]
    steps, batch, bins = map(int, numbers)
    measure.report(lambda: _work(table, label, steps, batch, bins, model))


def _work(path: str, label: str, steps: int, batch: int, bins: int, model: str) -> None:
    columns = _read(path, label)
    train = np.random.default_rng(0).random(len(columns.label)) < 0.8
    scales = _describe(columns.numbers[:, train])
    _describe(columns.numbers[:, ~train])
    vocabularies = [_vocabulary(column, train) for column in columns.texts]
    scaled = (columns.numbers - scales.mean[:, None]) / scales.deviation[:, None]
    numbers, ids = np.ascontiguousarray(scaled.T), _ids(columns.texts, vocabularies, len(train))
    network = _Network(columns.names, vocabularies, scales, bins)
    network.train(numbers[train], ids[train], columns.label[train], steps, batch)
    _evaluate(columns.label[~train], network.predict(numbers[~train], ids[~train]))
    network.save(model)


def _read(path: str, label: str) -> Columns:
    table = csv.read_csv(path)
    of_label = [name for name in re.findall(r"\w+", label) if name in table.column_names]
    values = table.select(of_label).to_pandas().eval(label).to_numpy(np.float32)
    # Of an expression, the first column is what the row has that a request has not.
    kept = [name for name in table.column_names if name != of_label[0]]
    texts = [name for name in kept if pa.types.is_string(table[name].type)]
    names = [name for name in kept if name not in texts]
    numbers = np.empty((len(names), table.num_rows), np.float32)
    for row, name in zip(numbers, names, strict=True):
        row[:] = table[name].to_numpy()
    return Columns((names, texts), numbers, [table[name] for name in texts], values)


def _describe(numbers: Array) -> Scales:
    """Compute counts, moments, extremes, zeros, quantiles and a histogram of each column; NaN is missing."""
    places = np.linspace(0, 1, _QUANTILES)
    mean, deviation, quantiles = [], [], np.empty((len(numbers), _QUANTILES), np.float32)
    for number, column in enumerate(numbers):
        present = np.sort(column[np.isfinite(column)])
        mean.append(present.mean(dtype=np.float64))
        deviation.append(present.std(dtype=np.float64) or 1.0)
        np.count_nonzero(present)
        np.histogram(present, 10)
        quantiles[number] = present[np.round(places * (len(present) - 1)).astype(int)]
    return Scales(np.float32(mean), np.float32(deviation), quantiles)


def _vocabulary(column: pa.ChunkedArray, train: Array) -> pa.Array:
    counts = column.filter(pa.array(train)).drop_null().value_counts()
    order = compute.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])
    return counts.field("values").take(order[:_VOCABULARY])


def _ids(texts: list[pa.ChunkedArray], vocabularies: list[pa.Array], rows: int) -> Array:
    """Return the rows of the one table of embeddings: int64, [rows, columns]."""
    ids = np.zeros((rows, len(texts)), np.int64)
    start = 0
    for number, (column, words) in enumerate(zip(texts, vocabularies, strict=True)):
        found = compute.fill_null(compute.index_in(column, value_set=words), len(words))
        ids[:, number] = np.asarray(found) + start
        start += len(words) + 1
    return ids


class _Network:
    """A perceptron of numbers and embedded ids, and its SavedModel.

    Args:
      names: The numeric columns and the columns of text.
      vocabularies: Of the columns of text.
      scales: Of the numeric columns.
      bins: Pieces of a number; 0 for the number alone.
    """

    def __init__(
        self, names: tuple[list[str], list[str]], vocabularies: list[pa.Array], scales: Scales, bins: int
    ) -> None:
        import tensorflow as tf

        self._tf, self._names, self._vocabularies, self._scales = tf, names, vocabularies, scales
        random = tf.random.Generator.from_seed(0)
        width = len(names[0]) * (1 + bins) + _WIDTH * len(names[1])
        sizes = [width, *_HIDDEN, 1]
        self._layers = [
            (tf.Variable(random.normal([above, below]) / above**0.5), tf.Variable(tf.zeros([below])))
            for above, below in itertools.pairwise(sizes)
        ]
        rows = sum(len(words) + 1 for words in vocabularies)
        self._table = tf.Variable(0.05 * random.normal([rows, _WIDTH])) if rows else None
        at = np.round(np.linspace(0, _QUANTILES - 1, bins + 1)).astype(int)
        self._edges = (scales.quantiles[:, at] - scales.mean[:, None]) / scales.deviation[:, None] if bins else None

    @property
    def _variables(self) -> list[Any]:
        weights = [variable for layer in self._layers for variable in layer]
        return weights if self._table is None else [self._table, *weights]

    def _logits(self, numbers: Any, ids: Any) -> Any:
        tf = self._tf
        present = tf.where(tf.math.is_nan(numbers), 0.0, numbers)
        parts = [present]
        if self._edges is not None:
            low, high = self._edges[:, :-1], self._edges[:, 1:]
            pieces = tf.math.divide_no_nan(present[:, :, None] - low, high - low)
            parts.append(tf.reshape(tf.clip_by_value(pieces, 0.0, 1.0), [-1, low.size]))
        if self._table is not None:
            parts.append(tf.reshape(tf.gather(self._table, ids), [-1, _WIDTH * len(self._names[1])]))
        hidden = tf.concat(parts, axis=1)
        for number, (weights, bias) in enumerate(self._layers):
            hidden = hidden @ weights + bias
            hidden = tf.nn.relu(hidden) if number < len(self._layers) - 1 else hidden
        return hidden[:, 0]

    def train(self, numbers: Array, ids: Array, label: Array, steps: int, batch: int) -> None:
        """Train with Adam on batches of rows drawn at random."""
        import tf_keras

        tf, variables = self._tf, self._variables
        optimizer = tf_keras.optimizers.Adam(1e-3)
        optimizer.build(variables)

        def step(numbers: Any, ids: Any, label: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = self._logits(numbers, ids)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(label, logits))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        step_graph = tf.function(step, autograph=False)
        draw = np.random.default_rng(0)
        for _ in range(steps):
            rows = draw.integers(len(label), size=batch)
            step_graph(tf.constant(numbers[rows]), tf.constant(ids[rows]), tf.constant(label[rows]))

    def predict(self, numbers: Array, ids: Array, batch: int = 8_192) -> Array:
        """Return the probabilities of rows."""
        tf = self._tf
        graph = tf.function(lambda numbers, ids: tf.sigmoid(self._logits(numbers, ids)), reduce_retracing=True)
        parts = [
            graph(tf.constant(numbers[at : at + batch]), tf.constant(ids[at : at + batch])).numpy()
            for at in range(0, len(numbers), batch)
        ]
        return np.concatenate(parts)

    def save(self, path: str) -> None:
        """Write a SavedModel whose signature `raw` takes one tensor per column."""
        tf, (numbers, texts) = self._tf, self._names
        module = tf.Module()
        module.variables_ = self._variables
        starts = np.cumsum([0, *(len(words) + 1 for words in self._vocabularies)]).tolist()
        module.tables = [
            tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(words.to_pylist()), tf.range(start, start + len(words), dtype=tf.int64)
                ),
                start + len(words),
            )
            for words, start in zip(self._vocabularies, starts, strict=False)
        ]

        def predict(columns: dict[str, Any]) -> dict[str, Any]:
            stacked = tf.stack([columns[name] for name in numbers], axis=1)
            ids = [table.lookup(columns[name]) for table, name in zip(module.tables, texts, strict=True)]
            scaled = (stacked - self._scales.mean) / self._scales.deviation
            return {"probability": tf.sigmoid(self._logits(scaled, tf.stack(ids, axis=1) if ids else None))}

        specs = {name: tf.TensorSpec([None], tf.float32, name=name) for name in numbers}
        specs |= {name: tf.TensorSpec([None], tf.string, name=name) for name in texts}
        signature = tf.function(predict, input_signature=[specs], autograph=False)
        tf.saved_model.save(module, path, signatures={"raw": signature})


def _evaluate(label: Array, scores: Array) -> dict[str, float]:
    """Return the area under the ROC curve by ranks (ties count by their order), accuracy and cross entropy."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    positive = label == 1
    count = positive.sum()
    clipped = np.clip(scores, 1e-7, 1 - 1e-7)
    return {
        "auc": float((ranks[positive].sum() - count * (count + 1) / 2) / max(1, count * (len(label) - count))),
        "binary_accuracy": float(np.mean((scores >= 0.5) == positive)),
        "binary_crossentropy": float(-np.mean(np.where(positive, np.log(clipped), np.log1p(-clipped)))),
    }


if __name__ == "__main__":
    main()
