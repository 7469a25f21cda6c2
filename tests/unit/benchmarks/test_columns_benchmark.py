"""Tests of the benchmark of the cost per column: its tables, its floor, and the figures that it reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import yaml

from benchmarks import columns, columns_model, columns_program, columns_tables, measure
from benchmarks.measure import Measurement

NODES = {"ExampleGen": (1.0, 300.0), "Trainer": (9.0, 700.0)}
"""CPU seconds and peak memory in MiB by node, for a run with 200 columns."""


def fake_run(command: Sequence[str], log: Path, rows: int | None = None) -> Measurement:
    """Return the measurement of a fake run.

    A node takes four times as much CPU time with 800 columns, and a tenth if it is cached.
    """
    if rows is not None:
        if "benchmarks.columns_model" in command:
            assert command[-1].endswith("/out/table/pushed/7")
        return Measurement(3, 3, 1, measure.Work(rows, 1, 2, 100))
    config = yaml.safe_load(Path(command[command.index("--config") + 1]).read_text())
    factor = len(config["features"]["columns"]) / 200
    output = Path(command[command.index("--output") + 1])
    cached = output.exists()
    (output / "table" / "pushed" / "7").mkdir(parents=True, exist_ok=True)
    nodes = {
        name: {"seconds": 1.0, "cpu_seconds": (0.1 if cached else cpu) * factor, "peak_memory_mb": memory}
        for name, (cpu, memory) in NODES.items()
    }
    log.write_text("a line\n" + json.dumps({"nodes": nodes}))
    return Measurement(10, 7 + sum(node["cpu_seconds"] for node in nodes.values()), 900)


def test_nodes_are_compared_with_the_floor_excluding_imports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measure, "run", fake_run)
    monkeypatch.setattr(
        measure, "record", lambda name, command, measured, facts: json.dumps([name, facts], default=str)
    )
    columns.main(["--shape", "5000x200", "5000x800", "--rows", "20", "--repeat", "2"])
    name, facts = json.loads(capsys.readouterr().out)
    assert name == "columns_5000x200_5000x800"
    assert facts["5000x200: ours / floor, CPU-seconds without imports"].startswith("5.000 ")
    assert facts["5000x800: ours / floor, CPU-seconds without imports"].startswith("20.0 ")
    assert facts["CPU-seconds, 800 columns / 200 columns"].startswith("4.000 ")
    assert facts["5000x200, Trainer"].startswith("9.000 (9.000 to 9.000) CPU-s, 700.0 ")
    assert facts["5000x200: CPU-seconds besides the nodes (imports, runner)"].startswith("7.000 ")
    assert facts["5000x200: CPU-seconds of its nodes, which do nothing"].startswith("0.200 ")


def test_tables_have_the_requested_rows_columns_and_missing_values(tmp_path: Path) -> None:
    columns_tables.write_floats(tmp_path / "floats.csv", 40_001, 3, missing=0.25)
    floats = pd.read_csv(tmp_path / "floats.csv")
    assert floats.shape == (40_001, 4)
    # The standard error of the missing rate is 0.0022.
    np.testing.assert_allclose(floats["x0001"].isna().mean(), 0.25, atol=0.01)
    columns_tables.write_clicks(
        tmp_path / "clicks.csv",
        500,
    )
    clicks = pd.read_csv(tmp_path / "clicks.csv", dtype=dict.fromkeys([f"C{n}" for n in range(1, 27)], str))
    assert clicks.shape == (500, 40)
    assert clicks["C1"].str.fullmatch("[0-9a-f]{8}").all()
    assert set(clicks["label"]) == {0, 1}


def test_floor_computes_the_same_statistics_as_numpy() -> None:
    rows = np.float32([[1, 2, np.nan, 4, 9], [0, 0, 5, 5, 5]])
    scales = columns_program._describe(rows)
    np.testing.assert_allclose(scales.mean, np.nanmean(rows, axis=1), atol=1e-6)
    np.testing.assert_allclose(scales.deviation, np.nanstd(rows, axis=1), atol=1e-6)
    assert scales.quantiles[:, [0, 500, 1000]].tolist() == [[1, 4, 9], [0, 5, 5]]


@pytest.mark.extended
@pytest.mark.parametrize(
    "features",
    [
        columns_program.Features(),
        columns_program.Features(bins=4),
        columns_program.Features(["b"], logs=["a", "b"], bins=3, buckets={"a": 5}, ids=["code"], hidden=[8]),
    ],
    ids=["plain", "bins", "all"],
)
def test_floor_saves_the_network_that_it_trained(
    tmp_path: Path, features: columns_program.Features, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted: list[Any] = []
    predict = columns_program._Network.predict

    def keep(self: Any, *inputs: Any) -> Any:
        predicted.append(predict(self, *inputs))
        return predicted[-1]

    monkeypatch.setattr(columns_program._Network, "predict", keep)
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"a": draw.normal(size=200), "word": draw.choice(["x", "y"], 200), "b": draw.normal(size=200)})
    table["code"] = draw.integers(0, 9, 200)
    table["y"] = (table["a"] > 0).astype(int)
    table.to_csv(tmp_path / "table.csv", index=False)
    columns_program._work(str(tmp_path / "table.csv"), "y", 3, 16, features, str(tmp_path / "model"))
    evaluated = table[np.random.default_rng(0).random(200) >= 0.8]
    model = tf.saved_model.load(str(tmp_path / "model"))
    specs = model.signatures["raw"].structured_input_signature[1]
    assert specs["code"].dtype == (tf.int64 if features.ids else tf.float32)
    inputs = {name: tf.constant(evaluated[name].to_numpy(), spec.dtype) for name, spec in specs.items()}
    answers = model.signatures["raw"](**inputs)
    # The SavedModel may add float32 numbers in another order.
    np.testing.assert_allclose(answers["probability"], predicted[0], atol=1e-5)


def test_model_is_called_with_examples_that_have_all_its_columns(tmp_path: Path):
    class Sum(tf.Module):  # type: ignore[misc]
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], dtype, name) for dtype, name in ((tf.float32, "x"), (tf.string, "t"))
            ]
        )
        def raw(self, x: Any, t: Any) -> Any:
            return {"prediction": x + tf.cast(tf.strings.length(t), tf.float32) + 1}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
        def serving_default(self, examples: Any) -> Any:
            # Both columns are required.
            features = {"x": tf.io.FixedLenFeature([], tf.float32), "t": tf.io.FixedLenFeature([], tf.string)}
            return self.raw(**tf.io.parse_example(examples, features))

    module = Sum()
    signatures = {"raw": module.raw, "serving_default": module.serving_default}
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    outputs = columns_model.call_signatures(str(tmp_path))
    assert {name: output["prediction"].numpy().tolist() for name, output in outputs.items()} == {
        "raw": [1.0, 1.0],
        "serving_default": [1.0, 1.0],
    }
