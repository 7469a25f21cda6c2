"""Tests of the warm-up, which calls every signature with valid rows before a version becomes available."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from components.results.request_schema import FILE, Column, RequestSchema
from components.serving.server import warm_up
from components.serving.server.errors import RequestError
from components.serving.server.model_manager import AVAILABLE, END, LOADING, ModelManager, load_verified
from components.serving.server.saved_model import SavedModel, Signature, TensorSpec
from tests.support.runs.command import ROOT
from tests.support.servers.serving import columns_model, line, predict, write_warmup

MISSING_INT = np.iinfo(np.int64).min
SCHEMA = RequestSchema(
    columns={
        "x": Column(dtype="float32", required=True, least=2.5, greatest=4),
        "word": Column(dtype="string", required=True, domain=("é", "b")),
        "past": Column(dtype="int64", most_values=None, least=3),
    }
)


def load(folder: Path) -> SavedModel:
    return load_verified(None, True, 1, folder)


def row(**features: Any) -> bytes:
    """Return a serialized tf.Example. The values of the features are lists."""
    example = tf.train.Example()
    for name, values in features.items():
        kind = {bytes: "bytes_list", int: "int64_list", float: "float_list"}[type(values[0])]
        getattr(example.features.feature[name], kind).value.extend(values)
    return bytes(example.SerializeToString())


NAMES = ("", "serving_default", "serving_default")
ROWS = (
    row(x=[1.5], word=[b"a"], past=[7, 8]),
    row(word=[b"b"], past=[9]),
    row(x=[-1.0], word=[b"c"]),
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Record the calls of signatures as pairs of name and inputs, and return the list of calls."""
    calls: list[tuple[str, dict[str, Any]]] = []
    run = Signature.run

    def record(self: Signature, inputs: Any) -> Any:
        calls.append((self.name, {name: value.tolist() for name, value in inputs.items()}))
        return run(self, inputs)

    monkeypatch.setattr(Signature, "run", record)
    return calls


def test_signatures_get_the_rows_of_the_recorded_requests(tmp_path: Path, calls: list[Any]) -> None:
    folder = columns_model(tmp_path, 1)
    write_warmup(folder, *(predict(signature=name, examples=[row]) for name, row in zip(NAMES, ROWS, strict=True)))
    model = load(folder)
    assert model.warm_up_requests == 3
    assert calls[:3] == [("serving_default", {"examples": [row]}) for row in ROWS]
    inputs_by_signature = dict(calls[3:])
    assert inputs_by_signature.keys() | {"serving_default"} == model.signatures.keys()
    assert inputs_by_signature["transform_features"] == {"examples": [*ROWS]}
    raw = inputs_by_signature["raw"]
    assert (raw["word"], raw["past"]) == ([b"a", b"b", b"c"], [[7, 8], [9, MISSING_INT], [MISSING_INT] * 2])
    np.testing.assert_array_equal(raw["x"], [1.5, np.nan, -1.0])
    assert inputs_by_signature["transformed"] == {"numbers": [[0.0, 0.0]]}


def test_rows_are_created_from_the_schema_if_no_requests_were_recorded(
    tmp_path: Path, calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    folder = columns_model(tmp_path, 1)
    (folder / FILE).parent.mkdir(exist_ok=True)
    (folder / FILE).write_text(SCHEMA.model_dump_json())
    model = load(folder)
    assert {name for name, _ in calls} == model.signatures.keys()
    inputs = dict(calls)
    assert inputs["raw"] == {"x": [2.5], "word": ["é".encode()], "past": [[3]]}
    example = tf.train.Example.FromString(inputs["serving_default"]["examples"][0]).features.feature
    assert (example["x"].float_list.value, example["word"].bytes_list.value) == ([2.5], ["é".encode()])
    assert "refuses" not in caplog.text
    assert model.row_checks is not None
    assert not model.row_checks.read_counts()


def test_unusual_values_of_the_warm_up_are_not_counted(tmp_path: Path) -> None:
    folder = columns_model(tmp_path, 1)
    (folder / FILE).parent.mkdir(exist_ok=True)
    (folder / FILE).write_text(SCHEMA.model_dump_json())
    unusual = row(x=[1e6], word=[b"z"], past=[0])
    write_warmup(folder, predict(examples=[unusual]))
    model = load(folder)
    assert model.row_checks is not None
    assert not model.row_checks.read_counts()
    model.signature("").run({"examples": np.array([unusual], object)})
    assert model.row_checks.read_counts() == {(name, "out_of_range"): 1 for name in ("x", "past")} | {
        ("word", "out_of_domain"): 1
    }


def test_created_row_that_a_model_rejects_is_a_warning(
    tmp_path: Path, calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    # The model requires the feature x, but it was exported without a schema, so the created row lacks it.
    model = load(line(tmp_path, 1))
    assert {name for name, _ in calls} == model.signatures.keys()
    assert "signature 'serving_default' refuses the row" in caplog.text


def test_recorded_row_that_another_signature_rejects_is_an_error(tmp_path: Path) -> None:
    folder = columns_model(tmp_path, 1, refused=4.0)
    write_warmup(folder, predict(examples=[row(x=[4.0])]))
    with pytest.raises(RequestError, match="x is refused"):
        load(folder)


def test_rows_that_columns_cannot_represent_are_skipped() -> None:
    inputs = {"x": TensorSpec(tf.float32, (-1,))}
    rows = warm_up.convert_examples("raw", inputs, [row(x=[1.0, 2.0]), row(x=[3.0])], None)
    assert rows is not None
    assert rows["x"].tolist() == [3.0]
    assert rows["x"].dtype == np.float32
    assert warm_up.convert_examples("raw", inputs, [row(x=[1.0, 2.0])], None) is None


def test_matrices_have_the_columns_in_the_order_of_the_schema() -> None:
    schema = RequestSchema(columns={name: Column(dtype="float32") for name in ("y", "x", "none")})
    inputs = {"float32": TensorSpec(tf.float32, (-1, 3))}
    rows = warm_up.convert_examples("matrix", inputs, [row(x=[1.0], y=[2.0]), row(x=[3.0])], schema)
    assert rows is not None
    np.testing.assert_array_equal(rows["float32"], [[2, 1, np.nan], [np.nan, 3, np.nan]])


def manager_of(base: Path, load: Callable[[Path], SavedModel]) -> ModelManager:
    return ModelManager(lambda: {"m": ModelConfig(name="m", base_path=str(base))}, load)


def test_version_with_a_signature_that_cannot_run_is_not_available(tmp_path: Path) -> None:
    columns_model(tmp_path, 1)
    manager = manager_of(tmp_path, load)
    asyncio.run(manager.update())
    columns_model(tmp_path, 2, file=str(tmp_path / "missing"))
    asyncio.run(manager.update())
    states = {version.number: version.state for version in manager.status("m")}
    assert states == {2: END, 1: AVAILABLE}
    assert "missing" in manager.status("m", 2)[0].error
    assert manager.find("m").number == 1


def test_old_version_answers_during_the_warm_up_of_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm-up of the new version waits until the old version has answered a request."""
    for number in (1, 2):
        columns_model(tmp_path / "made", number)
    base, warming, answered = tmp_path / "m", threading.Event(), threading.Event()
    base.mkdir()
    run = Signature.run

    def wait(self: Signature, inputs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and (base / "2").exists():
            warming.set()
            assert answered.wait(60)
        return run(self, inputs)

    monkeypatch.setattr(Signature, "run", wait)

    async def steps() -> None:
        manager = manager_of(base, load)
        (tmp_path / "made/1").rename(base / "1")
        await manager.update()
        (tmp_path / "made/2").rename(base / "2")
        updating = asyncio.ensure_future(manager.update())
        assert await asyncio.to_thread(warming.wait, 60)
        assert manager.status("m", 2)[0].state == LOADING
        with manager.find("m") as old:
            values = {"x": np.float32([2]), "word": np.array([b""], object), "past": np.array([[1]])}
            assert old.signature("raw").run(values)["y"].tolist() == [5]
        answered.set()
        await updating
        assert manager.find("m").number == 2

    asyncio.run(steps())


@pytest.mark.extended
def test_first_requests_do_not_optimize_graphs(tmp_path: Path) -> None:
    """TensorFlow logs every graph that it optimizes. It reads the log level once, so a new process is needed."""
    folder = columns_model(tmp_path, 1)
    environment = {**os.environ, "TF_CPP_VMODULE": "meta_optimizer=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    program = [sys.executable, str(ROOT / "tests/support/programs/first_requests.py"), str(folder)]
    output = subprocess.run(program, capture_output=True, text=True, env=environment, check=True).stderr
    before, after = output.split("every signature is warmed up")
    assert before.count("Starting optimization for grappler item") > 3
    assert "answered 4 signatures" in after
    assert "Starting optimization for grappler item" not in after
