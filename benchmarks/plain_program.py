"""Do the work of the taxi example's data path in a single program without a pipeline, as a side of `data_path`.

    python -m benchmarks.plain_program TRIPS.csv

It reads the trips, splits them by a hash of each row, computes statistics of each column, vocabularies and quantiles of
the training split, transforms all rows, writes rows and transformed rows as Parquet, and evaluates a network of the
example's size on the other split, for all rows and by payment type. The network is not trained, because the Trainer is
not part of the data path. The printed measurement does not include imports.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import compute, csv, parquet
from sklearn import metrics

from benchmarks import measure

_CATEGORIES = (
    *("payment_type", "company", "trip_start_hour", "trip_start_day", "trip_start_month"),
    *("pickup_community_area", "dropoff_community_area"),
)
_LOGARITHMS = ("trip_miles", "trip_seconds", "fare")
_BUCKETS = {
    "trip_miles": 30,
    "trip_seconds": 30,
    "fare": 60,
    **dict.fromkeys(("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude"), 20),
}
_BATCH = 8192


def main(trips: Path) -> None:
    """Measure the work."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf  # noqa: F401 - an import is not part of the work

    with tempfile.TemporaryDirectory() as folder:
        measure.report(lambda: _work(trips, Path(folder)))


def _work(trips: Path, folder: Path) -> None:
    table = csv.read_csv(trips)
    evaluated = pd.util.hash_pandas_object(table.to_pandas(), index=False).to_numpy() % 3 == 2
    train, eval_rows = (table.filter(pa.array(mask)) for mask in (~evaluated, evaluated))
    for name, rows in {"train": train, "eval": eval_rows}.items():
        parquet.write_table(rows, folder / f"{name}.parquet", compression="zstd")
        _statistics(rows)
    inputs, sizes = _transform(table, train)
    label = (_numbers(table, "tips") > 0.2 * _numbers(table, "fare")).astype(np.int64)
    for name, mask in {"train": ~evaluated, "eval": evaluated}.items():
        columns = {key: values[mask] for key, values in {**inputs, "label": label}.items()}
        parquet.write_table(pa.table(columns), folder / f"transformed-{name}.parquet", compression="zstd")
    scores = _predict({name: values[evaluated] for name, values in inputs.items()}, sizes)
    payment = np.asarray(eval_rows["payment_type"])
    for mask in (np.full(len(scores), True), *(payment == payment_type for payment_type in np.unique(payment))):
        _evaluate(label[evaluated][mask], scores[mask])


def _numbers(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    return np.asarray(table[name].cast(pa.float64()))


def _statistics(table: pa.Table) -> dict[str, object]:
    """Compute counts, extremes, moments and quantiles of numbers, and distinct and most frequent values of texts."""
    statistics: dict[str, object] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type):
            counts = column.value_counts()
            order = compute.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])
            statistics[name] = column.null_count, len(counts), counts.take(order[:20])
        else:
            moments = compute.min_max(column), compute.mean(column), compute.stddev(column)
            statistics[name] = (
                column.null_count,
                *moments,
                compute.quantile(column, [decile / 10 for decile in range(11)]),
            )
    return statistics


def _transform(table: pa.Table, train: pa.Table) -> tuple[dict[str, npt.NDArray[np.generic]], dict[str, int]]:
    """Return the inputs of the network, and the numbers of distinct ids of the inputs that are ids."""
    inputs: dict[str, npt.NDArray[np.generic]] = {}
    sizes: dict[str, int] = {}
    for name in _CATEGORIES:
        counts = train[name].drop_null().value_counts()
        order = compute.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])
        words = counts.field("values").take(order[:1000])
        ids = compute.fill_null(compute.index_in(table[name], value_set=words), len(words))
        inputs[name], sizes[name] = np.asarray(ids), len(words) + 1
    for name in _LOGARITHMS:
        logarithms = np.log1p(np.maximum(_numbers(table, name), 0))
        mean, deviation = np.nanmean(logarithms), np.nanstd(logarithms)
        inputs[f"{name}_log"] = np.nan_to_num((logarithms - mean) / deviation).astype(np.float32)
    for name, buckets in _BUCKETS.items():
        edges = np.nanquantile(_numbers(train, name), np.linspace(0, 1, buckets + 1)[1:-1])
        ids = np.searchsorted(edges, _numbers(table, name)).astype(np.int32)
        inputs[f"{name}_bucket"], sizes[f"{name}_bucket"] = ids, buckets + 1
    return inputs, sizes


def _predict(inputs: dict[str, npt.NDArray[np.generic]], sizes: dict[str, int]) -> npt.NDArray[np.float32]:
    import tensorflow as tf

    random = tf.random.Generator.from_seed(0)
    tables = {name: random.normal([size, 8]) for name, size in sizes.items()}
    numbers = [name for name in inputs if name not in sizes]
    layers = [random.normal([8 * len(sizes) + len(numbers), 128]), random.normal([128, 64]), random.normal([64, 1])]

    def network(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        parts = [tf.gather(tables[name], batch[name]) for name in sizes]
        hidden = tf.concat([*parts, tf.stack([batch[name] for name in numbers], axis=1)], axis=1)
        for weights in layers[:-1]:
            hidden = tf.nn.relu(hidden @ weights)
        return tf.sigmoid(hidden @ layers[-1] / 1000)[:, 0]

    graph = tf.function(network, reduce_retracing=True)
    rows = len(next(iter(inputs.values())))
    scores = [
        graph({name: tf.constant(values[at : at + _BATCH]) for name, values in inputs.items()}).numpy()
        for at in range(0, rows, _BATCH)
    ]
    return np.concatenate(scores)


def _evaluate(labels: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> dict[str, float]:
    has_both_classes = 0 < labels.sum() < len(labels)
    return {
        "auc": metrics.roc_auc_score(labels, scores) if has_both_classes else np.nan,
        "auc_precision_recall": metrics.average_precision_score(labels, scores) if has_both_classes else np.nan,
        "binary_accuracy": metrics.accuracy_score(labels, scores >= 0.5),
        "binary_crossentropy": metrics.log_loss(labels, scores, labels=[0, 1]),
        "calibration": float(scores.mean() / labels.mean()) if labels.any() else np.nan,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
