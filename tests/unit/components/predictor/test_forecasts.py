"""A forecast continues every series of a history after its last known label, with the features of training."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from pyarrow import parquet

from components.base.errors import InputError
from components.ingest import series_partitions
from components.ingest.config import DataConfig
from components.predictor import batch_prediction, model_interface
from components.predictor.batch_prediction import Predictions
from components.predictor.plan import PredictionPlan
from tests.unit.components.predictor.test_batch_prediction import OPTIONS

WINDOWS = {"by": "shop", "time": "date", "lags": [1, 2], "horizon": 2, "known": "promotion", "season": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model: the last value, plus 100 * horizon, plus 1000 * promotion."""
    folder = str(tmp_path_factory.mktemp("model"))
    module = tf.Module()

    def predict(sales_lag_1: tf.Tensor, horizon: tf.Tensor, promotion: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"prediction": sales_lag_1 + 100 * tf.cast(horizon, tf.float32) + 1000 * promotion}

    dtypes = {"sales_lag_1": tf.float32, "horizon": tf.int64, "promotion": tf.float32}
    specs = {name: tf.TensorSpec([None, 1], dtype, name) for name, dtype in dtypes.items()}
    signature = tf.function(predict).get_concrete_function(**specs)
    tf.saved_model.save(module, folder, {"serving_default": signature})
    return folder


def predict(model: str, folder: Path, *files: Path, columns: tuple[str, ...] = (), **section: Any) -> Predictions:
    config = DataConfig(path="unused.csv", label="sales", task="regression", windows=WINDOWS, **section)
    plan = PredictionPlan(ingest=config.ingest("csv"), columns=columns)
    folder.mkdir()
    return batch_prediction.predict(
        [str(file) for file in files],
        plan,
        model_interface.read(model),
        {"name": "test"},
        str(folder),
        lambda: beam.Pipeline(options=PipelineOptions(OPTIONS)),
    )


def day(number: int) -> str:
    return (datetime.date(2024, 2, 26) + datetime.timedelta(days=number)).isoformat()


def write(path: Path, *rows: tuple[str, int, object, object]) -> Path:
    lines = (f"{shop},{day(number)},{sales},{promotion}" for shop, number, sales, promotion in rows)
    path.write_text("\n".join(["shop,date,sales,promotion", *lines]))
    return path


def test_every_series_is_continued_after_its_last_known_label(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_partitions, "_PARTITION", 60)
    first = write(
        tmp_path / "a.csv", ("x", 2, 12, 0), ("y", 1, 21, 0), ("x", 0, 10, 0), ("y", 2, "", 1), ("y", 3, "", 0)
    )
    second = write(tmp_path / "b.csv", ("x", 4, "", 1), ("x", 1, 11, 0), ("x", 3, "", 0), ("y", 0, 20, 0))
    written = predict(model, tmp_path / "out", first, second, columns=("origin", "sales_lag_2", "seasonal_naive"))
    rows = sorted(parquet.read_table(tmp_path / "out").to_pylist(), key=lambda row: (row["shop"], row["horizon"]))
    names = ("shop", "date", "horizon", "origin", "sales_lag_2", "seasonal_naive", "prediction")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("x", "2024-02-29", 1, "2024-02-28", 11.0, 11.0, 112.0),
        ("x", "2024-03-01", 2, "2024-02-28", 11.0, 12.0, 1212.0),
        ("y", "2024-02-28", 1, "2024-02-27", 20.0, 20.0, 1121.0),
        ("y", "2024-02-29", 2, "2024-02-27", 20.0, 21.0, 221.0),
    ]
    assert list(rows[0]) == [*names[:3], *names[3:]]
    assert (written.rows, written.predicted, written.quarantined) == (9, 4, 0)


def test_rows_that_are_bad_or_not_selected_are_no_part_of_the_history(model: str, tmp_path: Path) -> None:
    rows = [("x", number, 10 + number, 0) for number in range(4)]
    known = [("x", 4, "", 0), ("x", 5, "", 0)]
    data = write(tmp_path / "a.csv", *rows, ("x", 6, "many", 0), ("z", 7, 1, 7), *known, ("x", 8, "", "often"))
    section = {"where": "promotion < 5 or promotion > 9", "bad_rows": {"max_fraction": 0.5}}
    written = predict(model, tmp_path / "out", data, **section)
    rows_written = parquet.read_table(tmp_path / "out").to_pylist()
    assert [(row["date"], row["prediction"]) for row in rows_written] == [(day(4), 113.0), (day(5), 213.0)]
    assert (written.rows, written.predicted, written.quarantined) == (9, 2, 2)
    with gzip.open(tmp_path / "out" / "_quarantine" / "bad_rows.jsonl.gz", "rt") as file:
        bad = [json.loads(line) for line in file]
    assert [(row["row"], row["column"]) for row in bad] == [(6, "sales"), (10, "promotion")]


def test_history_needs_the_columns_of_windows(model: str, tmp_path: Path) -> None:
    data = tmp_path / "a.csv"
    data.write_text("shop,date,promotion\nx,2024-01-01,0\n")
    with pytest.raises(InputError, match=r"data\.label: there is no column 'sales'"):
        predict(model, tmp_path / "out", data)
