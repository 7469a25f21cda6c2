"""Tests of converting variants in separate processes.

Operations that TensorFlow Lite does not support are named in errors, and the other variants are still created.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from components.base import child_process
from components.base.errors import MachineError
from components.edge import conversion_process, executor
from components.edge.config import VariantConfig
from components.edge.conversion_process import summarize_error
from components.edge.file_metadata import ModelDescription, TensorDescription
from tests.support.programs import forked_export_check

pytestmark = pytest.mark.both_lines


def save(function: object, folder: Path) -> str:
    """Save a model with the signature `transformed`, and rows for it.

    Args:
        function: Function of `x`, float32 of shape [batch].
        folder: Folder of the model and of the files eval.npz and train.npz.

    Returns:
        The path of the model.
    """
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.float32, name="x")
    module.transformed = tf.function(function, input_signature=[spec])
    tf.saved_model.save(module, str(folder / "model"), signatures={"transformed": module.transformed})
    for name in ("eval", "train"):
        np.savez(folder / f"{name}.npz", x=np.linspace(-1, 1, 40, dtype=np.float32))
    return str(folder / "model")


DESCRIPTION = ModelDescription("waves", "run 1", {"x": TensorDescription("x")}, TensorDescription("y"))


def convert(model: str, variants: list[VariantConfig], folder: Path) -> dict[str, str]:
    return executor.convert({variant.name: model for variant in variants}, model, variants, DESCRIPTION, folder)


@pytest.mark.extended
def test_variants_predict_the_same_as_the_model(tmp_path: Path) -> None:
    model = save(lambda x: {"y": tf.sigmoid(3 * x)}, tmp_path)
    variants = [VariantConfig(), VariantConfig(quantize="int8", representative=40)]
    assert convert(model, variants, tmp_path) == {}
    expected = 1 / (1 + np.exp(-3 * np.linspace(-1, 1, 40)))
    for variant, tolerance in zip(variants, (1e-6, 0.03), strict=True):
        np.testing.assert_allclose(np.load(tmp_path / f"{variant.name}.npy"), expected, atol=tolerance)
        latencies = json.loads((tmp_path / f"{variant.name}.json").read_text())["latencies"]
        assert [latency["threads"] for latency in latencies] == [1, 2]
        assert all(0 < latency["p50_ms"] <= latency["p99_ms"] for latency in latencies)


@pytest.mark.extended
@pytest.mark.parametrize("io", ["int8", "uint8"])
def test_file_of_integers_states_the_numbers_that_they_stand_for(io: Any, tmp_path: Path) -> None:
    model = save(lambda x: {"y": tf.sigmoid(3 * x)}, tmp_path)
    variant = VariantConfig(quantize="int8", io=io, representative=40)
    assert variant.name == f"tflite_int8_{io}_io"
    assert convert(model, [variant], tmp_path) == {}
    tensors = json.loads((tmp_path / f"{variant.name}.json").read_text())["tensors"]
    assert {name: tensor["dtype"] for name, tensor in tensors.items()} == {"x": io, "y": io}
    # The range of x is -1 to 1 in 256 numbers.
    assert tensors["x"]["scale"] == pytest.approx(2 / 255, rel=0.02, abs=1e-5)
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    expected = 1 / (1 + np.exp(-3 * x))
    np.testing.assert_allclose(np.load(tmp_path / f"{variant.name}.npy"), expected, atol=0.03)
    # Run the file as a device does, with integers only.
    interpreter = Interpreter(str(tmp_path / f"{variant.name}.tflite"))
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    answers = []
    for value in x:
        stored = np.round(value / tensors["x"]["scale"]) + tensors["x"]["zero_point"]
        limits = np.iinfo(io)
        interpreter.set_tensor(source["index"], np.array([np.clip(stored, limits.min, limits.max)], io))
        interpreter.invoke()
        answers.append(int(interpreter.get_tensor(target["index"])[0]))
    numbers = (np.array(answers) - tensors["y"]["zero_point"]) * tensors["y"]["scale"]
    np.testing.assert_allclose(numbers, expected, atol=0.03)


def test_representative_rows_are_of_all_classes() -> None:
    labels = np.array([0, 0, 0, 0, 0, 2, 0, 1, 0, 1])
    rows = executor.balance(labels, 6)
    # In turns: the first row of each class, then the second; the classes 1 and 2 have two rows and one row.
    np.testing.assert_array_equal(rows, [0, 7, 5, 1, 9, 2])
    assert sorted(executor.balance(labels, 100)) == list(range(10))


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> str:
    """Run conversions in forks of a process that has imported TensorFlow, and return the path of their interpreter."""
    python = forked_export_check.python()
    monkeypatch.setattr(child_process, "_PYTHON", python)
    return python


@pytest.mark.usefixtures("forks")
def test_operation_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    model = save(lambda x: {"y": tf.math.digamma(x)}, tmp_path)
    errors = convert(model, [VariantConfig(), VariantConfig(quantize="dynamic")], tmp_path)
    assert set(errors) == {"tflite_none", "tflite_dynamic"}
    assert all(error.startswith("tf.Digamma") for error in errors.values())


@pytest.fixture
def ended_by(tmp_path: Path, forks: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes converters end by signals.

    Processes that begin with the int8 variant write a line to stderr and end by the next signal of the list. Other
    processes run as forks.
    """
    interpreter = sys.base_prefix + "/bin/python3"

    def install(*signals: str, line: str = "loc: error: 'tf.Foo' op is bad") -> None:
        python = tmp_path / "python"
        (tmp_path / "signals").write_text(json.dumps(signals))
        python.write_text(
            f"""#!{interpreter} -SE
import json, os, pathlib, pickle, signal, sys, tempfile
[request] = pickle.load(sys.stdin.buffer)
file = pathlib.Path({str(tmp_path / "signals")!r})
signals = json.loads(file.read_text())
if signals and request["variants"][0]["quantize"] == "int8":
    file.write_text(json.dumps(signals[1:]))
    print({line!r}, file=sys.stderr, flush=True)
    os.kill(os.getpid(), getattr(signal, signals[0]))
with tempfile.TemporaryFile() as copy:
    pickle.dump([request], copy)
    copy.flush()
    os.lseek(copy.fileno(), 0, os.SEEK_SET)
    os.dup2(copy.fileno(), 0)
os.execv({forks!r}, [{forks!r}, *sys.argv[1:]])
"""
        )
        python.chmod(0o700)
        monkeypatch.setattr(child_process, "_PYTHON", str(python))

    return install


def test_variants_after_a_repeated_abort_are_created(tmp_path: Path, ended_by: Callable[..., None]) -> None:
    model = save(lambda x: {"y": tf.sigmoid(x)}, tmp_path)
    ended_by("SIGABRT", "SIGABRT")
    errors = convert(model, [VariantConfig(quantize="int8"), VariantConfig()], tmp_path)
    assert list(errors) == ["tflite_int8"]
    assert errors["tflite_int8"].startswith("the converter was aborted: tf.Foo")
    assert (tmp_path / "tflite_none.tflite").exists()


@pytest.mark.parametrize("signal", ["SIGABRT", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_variant_of_a_converter_that_is_killed_once_is_created(
    tmp_path: Path, ended_by: Callable[..., None], signal: str
) -> None:
    model = save(lambda x: {"y": tf.sigmoid(x)}, tmp_path)
    ended_by(signal)
    assert convert(model, [VariantConfig(quantize="int8", representative=40)], tmp_path) == {}
    assert (tmp_path / "tflite_int8.tflite").exists()


@pytest.mark.parametrize(
    ("signal", "line"), [("SIGKILL", ""), ("SIGTERM", ""), ("SIGBUS", ""), ("SIGABRT", "what():  std::bad_alloc")]
)
def test_converter_that_is_killed_twice_is_an_error(
    tmp_path: Path, ended_by: Callable[..., None], signal: str, line: str
) -> None:
    ended_by(signal, signal, line=line)
    message = f"the converter of tflite_int8 was killed by {signal}, 2 times in a row"
    with pytest.raises(MachineError, match=message):
        convert("none", [VariantConfig(quantize="int8")], tmp_path)
    assert json.loads((tmp_path / "signals").read_text()) == []


def test_lack_of_memory_during_a_conversion_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert_one(*_: object) -> bytes:
        raise tf.errors.ResourceExhaustedError(None, None, "failed to allocate memory")

    save(lambda x: {"y": x}, tmp_path)
    monkeypatch.setattr(conversion_process, "_convert", convert_one)
    variant = {"name": "v", "model": "", "quantize": "none", "representative": 1}
    request = {"folder": tmp_path, "model": "", "signature": "", "description": asdict(DESCRIPTION)}
    with pytest.raises(tf.errors.ResourceExhaustedError):
        conversion_process.main({**request, "variants": [variant]})
    assert not (tmp_path / "v.json").exists()


def test_summary_of_an_abort_names_the_operations() -> None:
    assert summarize_error("loc: error: 'tf.Foo' op is bad\nAborted") == "tf.Foo: Aborted"
    assert summarize_error("") == "no message"
