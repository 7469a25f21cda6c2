"""Predictions of two versions: how often equal ones are taken for different, and which differences are found."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from request_logs import raw, write
from tolerances import rounding

from components.monitor.config import MonitorConfig
from components.monitor.request_log import ServedRows
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.registry import canary_predictions
from pipeline.registry.canary_predictions import compare
from pipeline.registry.canary_rollout import Measurement, Predictions, judge
from pipeline.registry.traffic_metrics import Traffic

FINE = Traffic(10_000, 0, 0.01)


def probabilities(random: np.random.Generator, rows: int, bias: float = 0.0) -> npt.NDArray[np.float32]:
    """Most are near zero, as of rows of which few are positive."""
    logits = random.normal(-2, 3, (rows, 1)) + bias
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def served(values: npt.NDArray[np.float32]) -> ServedRows:
    return ServedRows(len(values), {}, {"probability": values})


def worse(predictions: Predictions) -> str:
    return judge(Measurement(FINE, FINE, predictions), CanaryConfig(), complete=False)[0]


def test_equal_predictions_are_not_taken_for_different() -> None:
    random = np.random.default_rng(3)
    for _ in range(100):
        stable, canary = (served(probabilities(random, rows)) for rows in (5000, 500))
        assert not worse(compare(stable, canary))


def test_differences() -> None:
    random = np.random.default_rng(5)
    stable = served(probabilities(random, 5000))
    near_zero = served(np.maximum(stable.outputs["probability"] / 10, 1e-7))
    small = served(probabilities(random, 2000, bias=0.2))
    # A tenth of the least probabilities moves no prediction; a tenth of all does.
    assert not worse(compare(stable, small))
    assert "output probability differs by" in worse(compare(stable, near_zero))
    assert "output probability differs by" in worse(compare(stable, served(probabilities(random, 500, bias=1.5))))
    turned = compare(stable, served(1 - probabilities(random, 500)))
    assert turned.outputs[0].difference > 1
    constant = compare(served(np.full((600, 1), 3, np.float32)), served(np.full((600, 1), 4, np.float32)))
    assert constant.outputs[0].difference == rounding(4).approx(2)
    same = compare(served(np.full((600, 1), 3, np.float32)), served(np.full((600, 1), 3, np.float32)))
    assert same.outputs[0].difference == 0


def test_texts_and_outputs_that_one_version_lacks() -> None:
    def answers(texts: list[bytes]) -> ServedRows:
        return ServedRows(len(texts), {}, {"class": np.array(texts, object)[:, np.newaxis]})

    texts = answers([b"a"] * 300 + [b"b"] * 300)
    assert worse(compare(texts, answers([b"a"] * 500 + [b"b"] * 100))).startswith("output class differs by 0.333")
    assert not worse(compare(texts, texts))
    other = ServedRows(600, {}, {"score": np.zeros((600, 1), np.float32)})
    assert worse(compare(texts, other)).startswith("output class differs by 1.000")


def test_files_of_before_the_step_are_not_read(tmp_path: Path) -> None:
    old = write(tmp_path / "requests-1700000000000000000-1.tfrecord.gz", raw(1, [1.0], ["a"], [7]))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    write(tmp_path / "requests-1700000500000000000-1.tfrecord.gz", raw(1, [2.0], ["a"], [7]), raw(2, [2.0], ["a"], [7]))
    config, now = MonitorConfig(requests=(str(tmp_path),)), time.time()
    read = canary_predictions.read(1, 2, now - 60, config)
    assert (read.canary, read.stable, [each.name for each in read.outputs]) == (1, 1, ["score"])
    assert canary_predictions.read(1, 2, now + 60, config) == Predictions(0, 0, ())
    nowhere = MonitorConfig(requests=(str(tmp_path / "none"),))
    assert canary_predictions.read(1, 2, 0, nowhere) == Predictions(0, 0, ())
