"""Tests of running a variant on a device through the user's command."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from components.base.errors import MachineError
from components.edge import device_program
from components.edge.config import DeviceConfig, VariantConfig
from components.edge.device import run_on_device
from components.edge.device_program import File
from components.edge.gate import Rows, judge
from tests.support.data.tolerances import float64_sum

X = np.linspace(-1, 1, 40, dtype=np.float32)
PROGRAM = device_program.__file__


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = tf.Module()
    spec = tf.TensorSpec([1], tf.float32, name="x")
    module.predict = tf.function(lambda x: {"y": tf.sigmoid(3 * x)}, input_signature=[spec])
    folder = tmp_path_factory.mktemp("model")
    tf.saved_model.save(module, str(folder), signatures={"transformed": module.predict})
    path = folder / "model.tflite"
    path.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())
    return path


def test_file_is_run_by_the_command(file: Path) -> None:
    config = DeviceConfig(command=(sys.executable, PROGRAM, "{model}", "{inputs}", "{outputs}"), rows=30)
    expected = File(file.read_bytes(), 1).predict_rows({"x": X})
    np.testing.assert_allclose(expected, 1 / (1 + np.exp(-3 * X)), atol=1e-5)
    labels = (X > 0).astype(float)
    labels[15] = 1
    rows = Rows("binary", labels, np.ones(40), expected)
    result = run_on_device(config, file, {"x": X}, rows, expected)
    assert (result.rows, result.max_difference) == (30, 0)
    assert 0 < result.p50_ms <= result.p99_ms
    # Of 30 rows, 10 and row 15 have label 1. Row 15 is predicted below four of the 19 others.
    assert result.metric == float64_sum(4).approx(1 - 4 / (11 * 19))
    for limit, reasons in ((1e6, 0), (result.p99_ms / 2, 1)):
        variant = VariantConfig(device=config, max_p99_ms=limit)
        assert len(judge(variant, rows, b"", expected, [], device=result).why) == reasons


def test_other_predictions_of_the_device_are_a_reason(file: Path) -> None:
    config = DeviceConfig(command=(sys.executable, PROGRAM, "{model}", "{inputs}", "{outputs}"))
    expected = File(file.read_bytes(), 1).predict_rows({"x": X})
    rows = Rows("binary", (X > 0).astype(float), np.ones(40), expected)
    result = run_on_device(config, file, {"x": X}, rows, expected + 0.25)
    [reason] = judge(VariantConfig(device=config), rows, b"", expected, [], device=result).why
    assert reason == "difference on the device: expected at most 0.01, received 0.25"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('no device')", "ended with 1"),
        ("pass", "expected an NPZ file with predictions and milliseconds"),
        ("import numpy, sys; numpy.savez(sys.argv[1], predictions=[1])", "expected an NPZ file with predictions and"),
        (
            "import numpy, sys; numpy.savez(sys.argv[1], predictions=[1], milliseconds=[1])",
            r"expected predictions of shape \[40\] and 40 milliseconds, received shapes \[1\] and \[1\]",
        ),
        (
            "import numpy as n, sys; n.savez(sys.argv[1], predictions=n.ones([40, 3]), milliseconds=n.ones(40))",
            r"received shapes \[40, 3\] and \[40\]",
        ),
        (
            "import numpy as n, sys; n.savez(sys.argv[1], predictions=n.full(40, n.nan), milliseconds=n.ones(40))",
            "expected finite predictions as on this machine, received NaN or infinite values",
        ),
        ("import sys; sys.exit(str({'braces': 1}))", "ended with 1"),
        ("import time; time.sleep(60)", "took more than 0.01 minutes"),
    ],
)
def test_command_that_fails_is_an_error_without_a_verdict(code: str, message: str, file: Path) -> None:
    config = DeviceConfig(command=(sys.executable, "-c", code, "{outputs}"), max_minutes=0.01 if "sleep" in code else 1)
    with pytest.raises(MachineError, match=message) as raised:
        run_on_device(config, file, {"x": X}, Rows("regression", X, np.ones(40), X), X)
    if "no device" in code:
        assert raised.value.details == ("no device",) or list(raised.value.details) == ["no device"]
