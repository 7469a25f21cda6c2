"""Answers requests of both APIs: limits how many are in progress, finds the version, checks, runs, counts, records."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tensorflow_serving.apis import prediction_log_pb2

from components.serving.server.batching import Batcher, BatchLimits
from components.serving.server.errors import InvalidRequestError, OverloadedError, RequestError
from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import ModelManager, Version
from components.serving.server.request_log import RequestLog
from components.serving.server.saved_model import Arrays, Signature
from components.serving.server.tensor_proto import to_proto


class ModelRequest(NamedTuple):
    """The model that a request is for.

    Attributes:
      api: REST or GRPC.
      model: its name.
      version: its number; None for the version of the label, or the greatest.
      label: of the version.
      signature: what to call.
    """

    api: str
    model: str
    version: int | None = None
    label: str | None = None
    signature: str = "serving_default"


class PredictService:
    """What both APIs share.

    Args:
      manager: the models.
      metrics: counts requests.
      log: records requests; None for no log.
      batching: limits of batches; None to run each request alone.
      workers: threads that run models.
      max_in_flight: requests in progress; more are rejected.

    Attributes:
      stopping: whether clients should close their connections.
    """

    def __init__(
        self,
        manager: ModelManager,
        metrics: Metrics,
        log: RequestLog | None = None,
        batching: BatchLimits | None = None,
        workers: int = 1,
        max_in_flight: int = 256,
    ) -> None:
        self.manager, self.metrics, self.stopping = manager, metrics, False
        self._log, self._batching, self._max_in_flight = log, batching, max_in_flight
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="run")
        self._batchers: dict[tuple[Version, str], Batcher] = {}
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def admit(self, api: str) -> Iterator[None]:
        """Count a request as in progress until the end of the block, from before its body is read.

        Raises:
          OverloadedError: too many are in progress.
        """
        if self._in_flight >= self._max_in_flight:
            self.metrics.request(None, "", api, OverloadedError.code.name, 0.0)
            raise OverloadedError(f"expected at most {self._max_in_flight} requests in progress; try again")
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def predict(
        self, request: ModelRequest, read_inputs: Callable[[Signature], Arrays], method: str = "predict"
    ) -> tuple[Version, dict[str, Any]]:
        """Run a signature.

        Args:
          request: the model.
          read_inputs: reads the inputs for the signature.
          method: predict, classify or regress.

        Returns:
          The version that answered, and its outputs: name → array.

        Raises:
          RequestError: for every failure.
        """
        started, version, status = time.perf_counter(), None, "OK"
        try:
            version = self.manager.find(request.model, request.version, request.label)
            with version as saved_model:
                signature = saved_model.signature(request.signature)
                inputs = read_inputs(signature)
                signature.check(inputs)
                outputs = await self._run(version, signature, inputs)
            if self._log is not None and method == "predict":
                self._log.add(functools.partial(_prediction_log, version, signature.name, inputs, outputs))
            return version, outputs
        except RequestError as error:
            status = error.code.name
            raise
        except asyncio.CancelledError:
            status = "CANCELLED"  # The client disconnected.
            raise
        except Exception as error:
            logging.exception("a request failed: %s", request)
            status = RequestError.code.name
            raise RequestError(f"{type(error).__name__}: {error}") from error
        finally:
            self.metrics.request(version, method, request.api, status, time.perf_counter() - started)

    async def classify(
        self, request: ModelRequest, examples: npt.NDArray[Any]
    ) -> tuple[Version, list[list[tuple[str, float]]]]:
        """Classify serialized tf.Examples, shape [batch]; return the version, and labels with scores of each example.

        Raises:
          RequestError: for every failure.
        """
        version, outputs = await self.predict(request, _reader("classify", examples), "classify")
        shapes = [outputs[name].shape for name in ("scores", "classes") if name in outputs]
        if not shapes:
            raise InvalidRequestError(f"signature {request.signature!r}: expected the output scores or classes")
        scores = outputs.get("scores", np.zeros(shapes[0])).tolist()
        labels = outputs.get("classes", np.full(shapes[0], b"")).tolist()
        return version, [
            [(label.decode(errors="replace"), score) for label, score in zip(*row, strict=True)]
            for row in zip(labels, scores, strict=True)
        ]

    async def regress(self, request: ModelRequest, examples: npt.NDArray[Any]) -> tuple[Version, list[float]]:
        """Return the version, and a value for each serialized tf.Example, shape [batch].

        Raises:
          RequestError: for every failure.
        """
        version, outputs = await self.predict(request, _reader("regress", examples), "regress")
        if "outputs" not in outputs or outputs["outputs"].size != len(examples):
            raise InvalidRequestError(f"signature {request.signature!r}: expected outputs with a value per example")
        return version, outputs["outputs"].ravel().tolist()

    def _run(self, version: Version, signature: Signature, inputs: Arrays) -> Awaitable[dict[str, Any]]:
        if self._batching is None or not signature.batches:
            return asyncio.get_running_loop().run_in_executor(self._threads, signature.run, inputs)
        key = (version, signature.name)
        if key not in self._batchers:
            count = functools.partial(self.metrics.batch, version)
            self._batchers[key] = Batcher(signature, self._batching, self._threads, count)
        return self._batchers[key].run(inputs)

    def remove(self, version: Version) -> None:
        """Remove what belongs to a version that was unloaded."""
        self._batchers = {key: each for key, each in self._batchers.items() if key[0] is not version}
        self.metrics.remove(version)

    async def finish(self, timeout: float) -> None:
        """Wait until no request is in progress, at most for so many seconds."""
        self.stopping = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout)

    def close(self) -> None:
        """Write the request log and end the threads."""
        if self._log is not None:
            self._log.close()
        self._threads.shutdown()


def _reader(method: str, examples: npt.NDArray[Any]) -> Callable[[Signature], Arrays]:
    def read(signature: Signature) -> Arrays:
        if signature.method != f"tensorflow/serving/{method}" or len(signature.inputs) != 1:
            raise InvalidRequestError(
                f"signature {signature.name!r}: expected the method tensorflow/serving/{method} and one input, "
                f"received {signature.method} and {len(signature.inputs)}; use predict"
            )
        return dict.fromkeys(signature.inputs, examples)

    return read


def _prediction_log(version: Version, signature: str, inputs: Arrays, outputs: Arrays) -> Any:
    log = prediction_log_pb2.PredictionLog()
    request, response = log.predict_log.request, log.predict_log.response
    for spec in (request.model_spec, response.model_spec):
        spec.name, spec.version.value, spec.signature_name = version.model, version.number, signature
    for arrays, protos in ((inputs, request.inputs), (outputs, response.outputs)):
        for name, value in arrays.items():
            to_proto(value, protos[name])
    return log
