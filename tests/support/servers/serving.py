"""Small models, and servers for them: real processes on free ports."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from components.results import version_manifest as pushed

PATIENCE_SECONDS = 120.0


class _Line(tf.Module):
    """y = slope · x + 1, with several signatures; `loop` counts down from x, an op at a time."""

    def __init__(self, slope: float, output: str) -> None:
        super().__init__()
        self.slope = tf.Variable(slope)
        self._output = output

    def y(self, x: Any) -> Any:
        return self.slope * x + 1.0

    def parsed(self, examples: Any) -> Any:
        return self.y(tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(self, examples: Any) -> Any:
        return {self._output: self.parsed(examples)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, name="x"), tf.TensorSpec([None], tf.string, name="name")]
    )
    def raw(self, x: Any, name: Any) -> Any:
        return {"y": self.y(x), "greeting": tf.strings.join(["hello ", name]), "name_bytes": name}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.int64, name="pairs")])
    def pairs(self, pairs: Any) -> Any:
        return {"sum": tf.reduce_sum(pairs, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="n")])
    def loop(self, n: Any) -> Any:
        return {"steps": tf.while_loop(lambda n, _: tf.reduce_any(n > 0), lambda n, s: (n - 1, s + 1), [n, n * 0])[1]}


def line(base: Path, number: int, slope: float = 2.0, manifest: bool = False, output: str = "y") -> Path:
    """Write the model y = slope · x + 1 as a version, atomically.

    Args:
      base: the model's folder.
      number: the version.
      slope: Slope of the line.
      manifest: whether to write a manifest, as a push does.
      output: the name of the output of `serving_default`.
    """
    base.mkdir(parents=True, exist_ok=True)
    model = _Line(slope, output)
    with tempfile.TemporaryDirectory(dir=base, prefix=".") as temporary:
        folder = Path(temporary, str(number))
        signatures = {name: getattr(model, name) for name in ("serving_default", "raw", "pairs", "loop")}
        tf.saved_model.save(model, str(folder), signatures=signatures)
        if manifest:
            add_manifest(folder, base.name)
        folder.rename(base / str(number))
    return base / str(number)


class _Hoarder(tf.Module):
    """y = x + 1; `hoard` keeps a tensor of n MiB in memory for minutes."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serving_default(self, x: Any) -> Any:
        return {"y": x + 1.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="n")])
    def hoard(self, n: Any) -> Any:
        most = tf.reduce_max(tf.concat([n, [0]], axis=0))
        kept = tf.zeros([most * 2**18], tf.float32)
        start, steps = most * 0, most * 100_000
        _, kept = tf.while_loop(lambda step, _: step < steps, lambda step, kept: (step + 1, kept + 1.0), [start, kept])
        return {"sum": tf.zeros_like(n, tf.float32) + tf.reduce_sum(kept)}


def hoarder(base: Path, number: int) -> Path:
    """Write a model whose signature `hoard` takes n MiB of memory as a version, atomically."""
    base.mkdir(parents=True, exist_ok=True)
    model = _Hoarder()
    with tempfile.TemporaryDirectory(dir=base, prefix=".") as temporary:
        folder = Path(temporary, str(number))
        signatures = {name: getattr(model, name) for name in ("serving_default", "hoard")}
        tf.saved_model.save(model, str(folder), signatures=signatures)
        folder.rename(base / str(number))
    return base / str(number)


class _Columns(tf.Module):
    """y = x + the sum of past + 2, with the signatures of this project's models."""

    def __init__(self, refused: float, file: str) -> None:
        super().__init__()
        self.weight = tf.Variable(1.0)
        self._refused, self._file = refused, file

    def y(self, x: Any, past: Any) -> Any:
        return self.weight * tf.where(tf.math.is_nan(x), 0.0, x) + tf.cast(tf.reduce_sum(past, axis=1), tf.float32) + 2

    def parsed(self, examples: Any) -> tuple[Any, Any]:
        spec = {
            "x": tf.io.FixedLenFeature([], tf.float32, float("nan")),
            "past": tf.io.RaggedFeature(tf.int64),
            "word": tf.io.VarLenFeature(tf.string),
        }
        columns = tf.io.parse_example(examples, spec)
        return columns["x"], columns["past"].to_tensor()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serving_default(self, examples: Any) -> Any:
        return {"y": self.y(*self.parsed(examples))}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="x"),
            tf.TensorSpec([None], tf.string, name="word"),
            tf.TensorSpec([None, None], tf.int64, name="past"),
        ]
    )
    def raw(self, x: Any, word: Any, past: Any) -> Any:
        accepted = tf.debugging.assert_none_equal(x, self._refused, message="x is refused")
        with tf.control_dependencies([accepted]):
            return {"y": self.y(x, tf.where(past == tf.int64.min, tf.zeros_like(past), past)), "word": word}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(self, examples: Any) -> Any:
        x, past = self.parsed(examples)
        return {"numbers": tf.stack([x, tf.cast(tf.reduce_sum(past, axis=1), tf.float32)], axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="numbers")])
    def transformed(self, numbers: Any) -> Any:
        size = tf.strings.length(tf.io.read_file(self._file)) if self._file else 0
        return {"y": self.weight * tf.reduce_sum(numbers, axis=1) + tf.cast(size, tf.float32)}


def columns_model(base: Path, number: int, refused: float = -1e30, file: str = "") -> Path:
    """Write a model with the signatures of this project's models as a version, atomically.

    Args:
      base: the model's folder.
      number: the version.
      refused: a value of x that `raw` refuses.
      file: File that every call of `transformed` reads, or "".
    """
    base.mkdir(parents=True, exist_ok=True)
    model = _Columns(refused, file)
    names = ("serving_default", "raw", "transform_features", "transformed")
    with tempfile.TemporaryDirectory(dir=base, prefix=".") as temporary:
        folder = Path(temporary, str(number))
        tf.saved_model.save(model, str(folder), signatures={name: getattr(model, name) for name in names})
        folder.rename(base / str(number))
    return base / str(number)


def write_warmup(folder: Path, *requests: Any) -> None:
    """Write the warm-up file of a version."""
    path = folder / "assets.extra/tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for request in requests:
            log = prediction_log_pb2.PredictionLog(predict_log={"request": request})
            writer.write(log.SerializeToString())


def add_manifest(folder: Path, model: str) -> None:
    """Write the manifest of a version, as a push does."""
    facts = pushed.Provenance(
        pipeline=model,
        version=int(folder.name),
        run="r",
        created="2026-01-01T00:00:00+00:00",
        spans=(),
        metrics={},
        blessed_by="thresholds",
        config_digest="",
        tfx="",
        tensorflow="",
    )
    pushed.write(folder, facts)


def example(x: float) -> bytes:
    """Return a row for the model's serving_default."""
    feature = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[x]))}
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def b64(content: bytes) -> dict[str, str]:
    """Encode bytes for a request to the REST API."""
    return {"b64": base64.b64encode(content).decode()}


def proto(dtype: int, sizes: list[int], **values: Any) -> Any:
    """Return a TensorProto; its fields need not be consistent."""
    dimensions = [{"size": size} for size in sizes]
    return tensor_pb2.TensorProto(dtype=dtype, tensor_shape={"dim": dimensions}, **values)


def predict(model: str = "line", signature: str = "", **inputs: Any) -> Any:
    """Return a PredictRequest with these inputs: arrays, lists or TensorProtos."""
    protos = {
        name: value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
        for name, value in inputs.items()
    }
    return predict_pb2.PredictRequest(model_spec={"name": model, "signature_name": signature}, inputs=protos)


class _Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Adds a deadline to gRPC calls; without it, a client would wait forever for a server that does not answer."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(timeout=PATIENCE_SECONDS), request)


@dataclass
class Server:
    """A listening server.

    Attributes:
      process: the server.
      rest: port of the REST API.
      rpc: port of the gRPC API.
      log: its output.
      host: its address.
    """

    process: subprocess.Popen[bytes]
    rest: int
    rpc: int
    log: Path
    host: str = "127.0.0.1"

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request to the REST API; return the status and the body, parsed if it is JSON."""
        connection = http.client.HTTPConnection(self.host, self.rest, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
            answer = connection.getresponse()
            content = answer.read()
            value = json.loads(content) if "json" in answer.headers.get("Content-Type", "") else content
            return answer.status, value
        finally:
            connection.close()

    def states(self, model: str) -> dict[int, str]:
        """Return the versions of a model and their states."""
        status, answer = self.ask("GET", f"/v1/models/{model}")
        if status != 200:
            return {}
        return {int(version["version"]): version["state"] for version in answer["model_version_status"]}

    def wait(self, model: str, number: int, state: str = "AVAILABLE") -> None:
        """Wait until a version has reached a state."""
        self.until(lambda: self.states(model).get(number) == state)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition while the server runs."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the condition did not become true:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.02)

    @contextlib.contextmanager
    def stubs(self) -> Iterator[tuple[Any, Any]]:
        """Yield stubs of PredictionService and ModelService whose calls have a deadline."""
        with grpc.insecure_channel(f"{self.host}:{self.rpc}") as channel:
            limited = grpc.intercept_channel(channel, _Deadline())
            yield (
                prediction_service_pb2_grpc.PredictionServiceStub(limited),
                model_service_pb2_grpc.ModelServiceStub(limited),
            )

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def serving(
    folder: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    host: str = "127.0.0.1",
    prefix: Sequence[str] = (),
) -> Iterator[Server]:
    """Yield a server process, killed at the end.

    Args:
      folder: Folder for its log and its ready file.
      options: Options of the server, which name the models; it looks for versions every tenth of a second.
      environment: Additional environment variables.
      host: Address that it listens on.
      prefix: Command that becomes the server, such as nsenter.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ready, log = folder / "ready.json", folder / "server.log"
    ready.unlink(missing_ok=True)
    command = [*prefix, sys.executable, "-m", "tests.support.programs.model_server", str(os.getpid())]
    command += [
        f"--host={host}",
        "--port=0",
        "--rest_api_port=0",
        f"--ready_file={ready}",
        "--file_system_poll_wait_seconds=0.1",
    ]
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **(environment or {})}
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=subprocess.STDOUT, env=variables)
    try:
        server = Server(process, 0, 0, log, host)
        server.until(ready.exists)
        ports = json.loads(ready.read_text())
        server.rest, server.rpc = ports["rest_port"], ports["grpc_port"]
        yield server
    finally:
        process.kill()
        process.wait()
