"""The floor of `benchmarks.columns`: one program without a pipeline, from a CSV file to a SavedModel.

    python -m benchmarks.columns_program TABLE LABEL STEPS BATCH FEATURES MODEL

It reads the table, splits it by row, computes the statistics of every column, standardizes the numbers and finds the
ids of the texts, trains a network for some steps, evaluates it on a fifth of the rows, and saves a SavedModel whose
signature takes one tensor per column. FEATURES is JSON for the class `Features`; `{}` uses all numbers and texts. All
rows are held in memory. The printed measurement does not include imports.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute, csv

from benchmarks import measure

Array: TypeAlias = "npt.NDArray[Any]"
_QUANTILES = 1_001
_VOCABULARY, _WIDTH = 50_000, 16
"""Size of a vocabulary, and width of an embedding."""
_RARE, _FEW = 3, 100
"""Minimum count of a value, which applies to vocabularies of more than `_FEW` values, as `init` chooses it."""


@dataclass(frozen=True)
class Features:
    """Features of the network besides the texts, so that the program does the same work as the pipeline.

    Attributes:
      numbers: Columns that are standardized. If None, all numbers.
      logs: Columns whose logarithms are standardized.
      bins: Number of pieces between quantiles into which the network's first layer expands a number, as
        `piecewise_linear` does. 0 means that numbers are not expanded.
      buckets: Column → number of equally full buckets, whose ids have embeddings.
      ids: Integers that have embeddings like texts.
      hidden: Sizes of the hidden layers.
    """

    numbers: list[str] | None = None
    logs: list[str] = field(default_factory=list)
    bins: int = 0
    buckets: dict[str, int] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    hidden: list[int] = field(default_factory=lambda: [64, 32])


class Columns(NamedTuple):
    """A table as arrays.

    Attributes:
      names: The names of the numeric columns, then of the columns of texts and ids.
      numbers: float32, [numeric columns, rows]; NaN where missing.
      texts: The columns of texts and ids.
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

    def edges(self, column: int, buckets: int) -> Array:
        """Return the borders between equally full buckets of a column, [buckets - 1]."""
        at = np.round(np.linspace(0, _QUANTILES - 1, buckets + 1)[1:-1]).astype(int)
        borders: Array = self.quantiles[column, at]
        return borders


def main() -> None:
    """Measure the work."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import tf_keras  # noqa: F401 - an import is not part of the work

    tf.config.threading.set_inter_op_parallelism_threads(2)
    table, label, steps, batch, features, model = sys.argv[1:]
    described = Features(**json.loads(features))
    measure.report(lambda: _work(table, label, int(steps), int(batch), described, model))


def _work(path: str, label: str, steps: int, batch: int, features: Features, model: str) -> None:
    columns = _read(path, label, features.ids)
    train = np.random.default_rng(0).random(len(columns.label)) < 0.8
    of_columns = _describe(columns.numbers[:, train])
    _describe(columns.numbers[:, ~train])
    names, texts = columns.names
    plain = names if features.numbers is None else features.numbers
    at = {name: number for number, name in enumerate(names)}
    chosen = [at[name] for name in plain]
    logs = _compute_logarithms(columns.numbers[[at[name] for name in features.logs]])
    numbers = np.concatenate([columns.numbers[chosen], logs])
    scales = _join_scales(of_columns, chosen, _compute_moments(logs[:, train]))
    vocabularies = [_find_vocabulary(column, train) for column in columns.texts]
    edges = {name: of_columns.edges(at[name], count) for name, count in features.buckets.items()}
    ids = _find_ids(columns.texts, vocabularies, len(train))
    start = sum(len(words) + 1 for words in vocabularies)
    of_buckets = []
    for name, borders in edges.items():
        of_buckets.append(start + np.searchsorted(borders, columns.numbers[at[name]], side="right"))
        start += len(borders) + 1
    ids = np.column_stack([ids, *of_buckets])
    numbers = np.ascontiguousarray(((numbers - scales.mean[:, None]) / scales.deviation[:, None]).T)
    network = _Network((plain, features.logs, texts), vocabularies, edges, scales, features)
    network.train(numbers[train], ids[train], columns.label[train], steps, batch)
    _evaluate(columns.label[~train], network.predict(numbers[~train], ids[~train]))
    network.save(model)


def _compute_logarithms(numbers: Array) -> Array:
    logs: Array = np.sign(numbers) * np.log1p(np.abs(numbers))
    return logs


def _compute_moments(numbers: Array) -> tuple[Array, Array]:
    """Return the means and standard deviations of the columns, [columns]; NaN is missing."""
    if not len(numbers):
        return np.empty(0, np.float32), np.empty(0, np.float32)
    return np.nanmean(numbers, axis=1, dtype=np.float64), np.nanstd(numbers, axis=1, dtype=np.float64)


def _join_scales(of_columns: Scales, chosen: list[int], of_logs: tuple[Array, Array]) -> Scales:
    """Concatenate the scales of the chosen columns and of the logarithms; quantiles exist only for the columns."""
    mean, deviation = (
        np.concatenate([values[chosen], logs]).astype(np.float32)
        for values, logs in zip(of_columns[:2], of_logs, strict=True)
    )
    return Scales(mean, deviation, of_columns.quantiles[chosen])


def _read(path: str, label: str, ids: list[str]) -> Columns:
    table = csv.read_csv(path)
    of_label = [name for name in re.findall(r"\w+", label) if name in table.column_names]
    values = table.select(of_label).to_pandas().eval(label).to_numpy(np.float32)
    # The first column of a label expression is not known when the model predicts, so it is not a feature.
    names_without_label = [name for name in table.column_names if name != of_label[0]]
    texts = [name for name in names_without_label if pa.types.is_string(table[name].type) or name in ids]
    names = [name for name in names_without_label if name not in texts]
    numbers = np.empty((len(names), table.num_rows), np.float32)
    for row, name in zip(numbers, names, strict=True):
        row[:] = table[name].to_numpy()
    return Columns((names, texts), numbers, [table[name] for name in texts], values)


def _describe(numbers: Array) -> Scales:
    """Compute counts, moments, extremes, zeros, quantiles and histograms of the columns; NaN is missing."""
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


def _find_vocabulary(column: pa.ChunkedArray, train: Array) -> pa.Array:
    counts = column.filter(pa.array(train)).drop_null().value_counts()
    if len(counts) > _FEW:
        counts = counts.filter(compute.greater_equal(counts.field("counts"), _RARE))
    order = compute.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])
    return counts.field("values").take(order[:_VOCABULARY])


def _find_ids(texts: list[pa.ChunkedArray], vocabularies: list[pa.Array], rows: int) -> Array:
    """Return the row numbers in the common embedding table, int64, [rows, columns]."""
    ids = np.zeros((rows, len(texts)), np.int64)
    start = 0
    for number, (column, words) in enumerate(zip(texts, vocabularies, strict=True)):
        indices = compute.fill_null(compute.index_in(column, value_set=words), len(words))
        ids[:, number] = np.asarray(indices) + start
        start += len(words) + 1
    return ids


class _Network:
    """A perceptron of numbers and embedded ids, and its SavedModel.

    Args:
      names: Columns of numbers, columns of numbers whose logarithms are read, and columns of texts and ids.
      vocabularies: Vocabularies of the columns of texts and ids.
      edges: Column → borders of its buckets.
      scales: Scales of the numbers and logarithms.
      features: Features of the network.
    """

    def __init__(
        self,
        names: tuple[list[str], list[str], list[str]],
        vocabularies: list[pa.Array],
        edges: dict[str, Array],
        scales: Scales,
        features: Features,
    ) -> None:
        import tensorflow as tf

        self._tf, self._names, self._vocabularies, self._buckets, self._scales = tf, names, vocabularies, edges, scales
        random = tf.random.Generator.from_seed(0)
        bins, self._embedded = features.bins, len(vocabularies) + len(edges)
        width = len(names[0]) * (1 + bins) + len(names[1]) + _WIDTH * self._embedded
        sizes = [width, *features.hidden, 1]
        self._layers = [
            (tf.Variable(random.normal([above, below]) / above**0.5), tf.Variable(tf.zeros([below])))
            for above, below in itertools.pairwise(sizes)
        ]
        rows = sum(len(entries) + 1 for entries in (*vocabularies, *edges.values()))
        self._table = tf.Variable(0.05 * random.normal([rows, _WIDTH])) if rows else None
        at = np.round(np.linspace(0, _QUANTILES - 1, bins + 1)).astype(int)
        mean, deviation = (scale[: len(names[0]), None] for scale in scales[:2])
        self._edges = (scales.quantiles[:, at] - mean) / deviation if bins else None

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
            pieces = tf.math.divide_no_nan(present[:, : len(low), None] - low, high - low)
            parts.append(tf.reshape(tf.clip_by_value(pieces, 0.0, 1.0), [-1, low.size]))
        if self._table is not None:
            parts.append(tf.reshape(tf.gather(self._table, ids), [-1, _WIDTH * self._embedded]))
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
        tf, (numbers, logs, texts) = self._tf, self._names
        module = tf.Module()
        module.variables_ = self._variables
        starts = np.cumsum([0, *(len(words) + 1 for words in self._vocabularies)]).tolist()
        module.tables = [
            tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(words.to_numpy(zero_copy_only=False)),
                    tf.range(start, start + len(words), dtype=tf.int64),
                ),
                start + len(words),
            )
            for words, start in zip(self._vocabularies, starts, strict=False)
        ]

        def predict(columns: dict[str, Any]) -> dict[str, Any]:
            of_logs = [tf.sign(columns[name]) * tf.math.log1p(tf.abs(columns[name])) for name in logs]
            stacked = tf.stack([*(columns[name] for name in numbers), *of_logs], axis=1)
            ids = [table.lookup(columns[name]) for table, name in zip(module.tables, texts, strict=True)]
            start = starts[-1]
            for name, edges in self._buckets.items():
                ids.append(start + tf.searchsorted(edges, columns[name], side="right", out_type=tf.int64))
                start += len(edges) + 1
            scaled = (stacked - self._scales.mean) / self._scales.deviation
            return {"probability": tf.sigmoid(self._logits(scaled, tf.stack(ids, axis=1) if ids else None))}

        specs = {name: tf.TensorSpec([None], tf.float32, name=name) for name in (*numbers, *logs, *self._buckets)}
        specs |= {
            name: tf.TensorSpec([None], table.key_dtype, name=name)
            for name, table in zip(texts, module.tables, strict=True)
        }
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
