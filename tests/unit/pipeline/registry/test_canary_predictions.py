"""Tests for the comparison of two versions' predictions: false alarms, and differences that must be reported."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.data.request_log import ServedRows
from pipeline.authoring.config.canary import CanaryConfig
from pipeline.registry import canary_predictions
from pipeline.registry.canary_predictions import compare
from pipeline.registry.canary_rollout import Measurement, Predictions, judge
from pipeline.registry.traffic_metrics import Traffic
from tests.support.data.request_logs import raw, write
from tests.support.data.tolerances import rounding

FINE = Traffic(10_000, 0, 0.01)


def probabilities(random: np.random.Generator, rows: int, bias: float = 0.0) -> npt.NDArray[np.float32]:
    """Draw probabilities that are mostly near zero, as in a data set with few positive rows."""
    logits = random.normal(-2, 3, (rows, 1)) + bias
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def make_served_rows(values: npt.NDArray[np.float32]) -> ServedRows:
    return ServedRows(len(values), {}, {"probability": values})


def describe_difference(predictions: Predictions) -> str:
    return judge(Measurement(FINE, FINE, predictions), CanaryConfig(), complete=False)[0]


def test_equal_distributions_are_not_reported_as_different() -> None:
    random = np.random.default_rng(3)
    for _ in range(100):
        stable, canary = (make_served_rows(probabilities(random, rows)) for rows in (5000, 500))
        assert not describe_difference(compare(stable, canary))


def test_large_differences_are_reported() -> None:
    random = np.random.default_rng(5)
    stable = make_served_rows(probabilities(random, 5000))
    near_zero = make_served_rows(np.maximum(stable.outputs["probability"] / 10, 1e-7))
    small = make_served_rows(probabilities(random, 2000, bias=0.2))
    # A small shift of the logits hardly changes the predictions, but dividing all predictions by ten does.
    assert not describe_difference(compare(stable, small))
    assert "output probability differs by" in describe_difference(compare(stable, near_zero))
    assert "output probability differs by" in describe_difference(
        compare(stable, make_served_rows(probabilities(random, 500, bias=1.5)))
    )
    inverted = compare(stable, make_served_rows(1 - probabilities(random, 500)))
    assert inverted.outputs[0].difference > 1
    constant = compare(
        make_served_rows(np.full((600, 1), 3, np.float32)), make_served_rows(np.full((600, 1), 4, np.float32))
    )
    assert constant.outputs[0].difference == rounding(4).approx(2)
    same = compare(
        make_served_rows(np.full((600, 1), 3, np.float32)), make_served_rows(np.full((600, 1), 3, np.float32))
    )
    assert same.outputs[0].difference == 0


def test_texts_and_missing_outputs_are_compared() -> None:
    def make_rows(texts: list[bytes]) -> ServedRows:
        return ServedRows(len(texts), {}, {"class": np.array(texts, object)[:, np.newaxis]})

    texts = make_rows([b"a"] * 300 + [b"b"] * 300)
    assert describe_difference(compare(texts, make_rows([b"a"] * 500 + [b"b"] * 100))).startswith(
        "output class differs by 0.333"
    )
    assert not describe_difference(compare(texts, texts))
    other_output = ServedRows(600, {}, {"score": np.zeros((600, 1), np.float32)})
    assert describe_difference(compare(texts, other_output)).startswith("output class differs by 1.000")


def test_log_files_from_before_the_step_are_not_read(tmp_path: Path) -> None:
    old = write(tmp_path / "requests-1700000000000000000-1.tfrecord.gz", raw(1, [1.0], ["a"], [7]))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    write(tmp_path / "requests-1700000500000000000-1.tfrecord.gz", raw(1, [2.0], ["a"], [7]), raw(2, [2.0], ["a"], [7]))
    requests, now = (str(tmp_path),), time.time()
    predictions = canary_predictions.read(1, 2, now - 60, requests)
    assert (predictions.canary, predictions.stable, [output.name for output in predictions.outputs]) == (
        1,
        1,
        ["score"],
    )
    assert canary_predictions.read(1, 2, now + 60, requests) == Predictions(0, 0, ())
    missing_log = (str(tmp_path / "none"),)
    assert canary_predictions.read(1, 2, 0, missing_log) == Predictions(0, 0, ())
