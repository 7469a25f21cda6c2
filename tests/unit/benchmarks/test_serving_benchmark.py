"""Tests of the serving benchmarks with a small model, and of their figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from benchmarks import serving
from benchmarks.measure import Spread
from benchmarks.serving import Bench, Load
from tests.support.servers.serving import add_manifest, example, line

REQUESTS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a push folder with a version that has warm-up requests."""
    models = tmp_path_factory.mktemp("models")
    extra = line(models, 1) / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for x in range(3):
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.name = "taxi"
            log.predict_log.request.inputs["examples"].CopyFrom(tf.make_tensor_proto([example(float(x))]))
            writer.write(log.SerializeToString())
    add_manifest(models / "1", "taxi")
    return models


def test_rates_are_compared_round_by_round() -> None:
    fast, slow = ([Load(1000, seconds, 1.0, 2.0) for seconds in times] for times in ((1.0, 2.0), (4.0, 4.0)))
    assert serving._times(fast, slow) == Spread(median=3.0, least=2.0, greatest=4.0)


def test_percentiles_are_computed_over_all_requests() -> None:
    assert Load.of(2.0, [1000 * ms for ms in range(1, 100)]) == Load(99, 2.0, 50.0, 99.0)


def test_version_without_warm_up_requests_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    with pytest.raises(SystemExit, match="expected a version that was warmed up"):
        Bench(tmp_path, tmp_path, 1, 1).version  # noqa: B018 - it raises


def test_mlserver_requires_a_separate_environment(models: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected --mlserver"), Bench(models, tmp_path, 1, 1).mlserver_process():
        pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load")
def test_throughput_is_measured_with_and_without_batches_over_both_apis(models: Path, tmp_path: Path) -> None:
    measured, facts = serving.throughput(Bench(models, tmp_path, 1, REQUESTS))
    assert measured.keys() == {f"{api}, {mode}" for api in ("rest", "grpc") for mode in ("alone", "in batches")}
    for (measurement,) in measured.values():
        assert measurement.work is not None
        assert measurement.work.rows == REQUESTS
        assert measurement.work.wall > 0
        assert measurement.work.cpu > 0
    for name in measured:
        for fact in ("requests/s", "median ms", "99th percentile, ms"):
            value = facts[f"{name}: {fact}"]
            assert isinstance(value, Spread)
            assert value.median > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("h2load") is None, reason="needs h2load")
def test_two_checkouts_are_compared(models: Path, tmp_path: Path) -> None:
    measured, facts = serving.checkouts(Bench(models, tmp_path, 1, REQUESTS, checkout=Path.cwd()))
    assert measured.keys() == {f"{api}, {which}" for api in ("rest", "grpc") for which in ("this", "other")}
    for api in ("rest", "grpc"):
        ratio = facts[f"{api}: requests/s, this / other"]
        assert isinstance(ratio, Spread)
        assert ratio.median > 0


def test_another_checkout_is_required(models: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected --checkout"):
        serving.checkouts(Bench(models, tmp_path, 1, 1))


@pytest.mark.slow
def test_model_called_in_a_process_answers_every_row(models: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.serving_program", "call", str(REQUESTS), str(models / "1"), "0.001"]
    value = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    took = json.loads(value)["took"]
    assert len(took) == REQUESTS
    assert min(took) > 0
