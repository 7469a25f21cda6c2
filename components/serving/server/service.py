"""Answers requests, whichever API they came by: finds the version, checks, runs, counts, records."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from tensorflow_serving.apis import model_pb2, prediction_log_pb2

from components.serving.server.batching import Batcher, Limits
from components.serving.server.library import Library, Version
from components.serving.server.metrics import Metrics
from components.serving.server.refusal import RequestError, failed, invalid, not_found, overloaded
from components.serving.server.request_log import RequestLog
from components.serving.server.servable import Arrays, Servable, Signature
from components.serving.server.tensors import put

DEFAULT_SIGNATURE = "serving_default"


class Asked(NamedTuple):
    """Which model a request is for, as both APIs can say it.

    Attributes:
      model: its name.
      version: its number; None: by label, or the greatest.
      label: of the version.
      signature: what to call.
    """

    model: str
    version: int | None = None
    label: str | None = None
    signature: str = DEFAULT_SIGNATURE


class Service:
    """The server's work, without its two faces.

    Args:
      library: the models.
      limits: of a batch; None: every request goes alone.
      workers: requests or batches that run side by side.
      most_at_once: requests that may be in here; more are refused.
      metrics: counts.
      log: records, if there is one.
    """

    def __init__(
        self,
        library: Library,
        limits: Limits | None,
        workers: int,
        most_at_once: int,
        metrics: Metrics,
        log: RequestLog | None,
    ) -> None:
        self.library, self.metrics = library, metrics
        self._limits, self._log = limits, log
        self._most_at_once = most_at_once
        self._now = 0
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="run")
        self._batchers: dict[tuple[Version, str], Batcher] = {}

    def predict(
        self, asked: Asked, entrypoint: str, inputs: Callable[[Signature], Arrays]
    ) -> Awaitable[tuple[Version, dict[str, Any]]]:
        """Answers a request to predict.

        Args:
          asked: of which model.
          entrypoint: REST or GRPC.
          inputs: reads the request's inputs, knowing what the signature takes.

        Returns:
          The version that has answered, and its outputs: name → array.

        Raises:
          RequestError: it cannot be answered.
        """
        return self._answered(asked, "predict", entrypoint, inputs)

    async def classify(
        self, asked: Asked, entrypoint: str, examples: Any
    ) -> tuple[Version, list[list[tuple[str, float]]]]:
        """Answers a request to classify.

        Args:
          asked: of which model; its signature's method has to be tensorflow/serving/classify.
          entrypoint: REST or GRPC.
          examples: tf.Examples, serialized, shape [batch].

        Returns:
          The version that has answered, and for each example its classes and their scores.

        Raises:
          RequestError: it cannot be answered.
        """
        version, answers = await self._examples(asked, entrypoint, "classify", examples)
        known = [answers[name] for name in ("scores", "classes") if name in answers]
        if not known:
            raise invalid(f"signature {asked.signature!r}: it gives neither classes nor scores")
        scores = answers.get("scores", np.zeros(known[0].shape)).tolist()
        labels = answers.get("classes", np.full(known[0].shape, b"")).tolist()
        return version, [
            [(label.decode(errors="replace"), score) for label, score in zip(*row, strict=True)]
            for row in zip(labels, scores, strict=True)
        ]

    async def regress(self, asked: Asked, entrypoint: str, examples: Any) -> tuple[Version, list[float]]:
        """Answers a request to regress, by a signature whose method is tensorflow/serving/regress.

        Args:
          asked: of which model.
          entrypoint: REST or GRPC.
          examples: tf.Examples, serialized, shape [batch].

        Returns:
          The version that has answered, and a value for each example.

        Raises:
          RequestError: it cannot be answered.
        """
        version, answers = await self._examples(asked, entrypoint, "regress", examples)
        values = answers.get("outputs")
        if values is None or values.size != len(examples):
            raise invalid(f"signature {asked.signature!r}: it does not give outputs, one for each example")
        return version, values.ravel().tolist()

    async def _examples(self, asked: Asked, entrypoint: str, api: str, examples: Any) -> tuple[Version, dict[str, Any]]:
        def inputs(signature: Signature) -> Arrays:
            if signature.method != f"tensorflow/serving/{api}" or len(signature.inputs) != 1:
                raise invalid(
                    f"signature {signature.name!r}: expected the method tensorflow/serving/{api} and one input, "
                    f"received {signature.method} and {len(signature.inputs)}; ask it to predict"
                )
            return dict.fromkeys(signature.inputs, examples)

        return await self._answered(asked, api, entrypoint, inputs)

    async def _answered(
        self, asked: Asked, api: str, entrypoint: str, inputs: Callable[[Signature], Arrays]
    ) -> tuple[Version, dict[str, Any]]:
        """Answers a request, and counts how it ends.

        Raises:
          RequestError: instead of whatever else went wrong.
        """
        started, version, status = time.perf_counter(), None, "OK"
        self._now += 1
        try:
            if self._now > self._most_at_once:
                raise overloaded(f"{self._most_at_once} requests are being answered; try again")
            version = self.library.find(asked.model, asked.version, asked.label)
            with version as servable:
                signature = servable.signature(asked.signature)
                given = inputs(signature)
                answers = await self._run(version, signature, given)
                if self._log is not None and api == "predict":
                    self._log.add(functools.partial(_record, version, signature, given, answers))
                return version, answers
        except RequestError as error:
            status = error.code.name
            raise
        except asyncio.CancelledError:
            # Whoever asked has gone.
            status = "CANCELLED"
            raise
        except Exception as error:
            logging.exception("a request to %s failed", asked)
            told = failed(error)
            status = told.code.name
            raise told from error
        finally:
            self._now -= 1
            self.metrics.request(version, api, entrypoint, status, time.perf_counter() - started)

    def servable(self, asked: Asked) -> tuple[Version, Servable]:
        """A version that is loaded, to tell about.

        Raises:
          RequestError: there is none.
        """
        version = self.library.find(asked.model, asked.version, asked.label)
        if version.servable is None:
            raise not_found(f"model {asked.model!r}, version {version.number}: it is not loaded")
        return version, version.servable

    def _run(self, version: Version, signature: Signature, inputs: Arrays) -> Awaitable[dict[str, Any]]:
        signature.check(inputs)
        if self._limits is None or not signature.batches:
            return asyncio.get_running_loop().run_in_executor(self._threads, signature.run, inputs)
        batcher = self._batchers.get((version, signature.name))
        if batcher is None:
            batcher = Batcher(signature, self._limits, self._threads, lambda rows: self.metrics.batch(version, rows))
            self._batchers[version, signature.name] = batcher
        return batcher.run(inputs)

    def forget(self, version: Version) -> None:
        """Drops what belongs to a version that is gone."""
        for key in [key for key in self._batchers if key[0] is version]:
            del self._batchers[key]
        self.metrics.forget(version)

    def close(self) -> None:
        """Writes what is to be recorded, and ends the threads."""
        if self._log is not None:
            self._log.close()
        self._threads.shutdown()


def _record(version: Version, signature: Signature, inputs: Arrays, answers: Mapping[str, Any]) -> Any:
    log = prediction_log_pb2.PredictionLog()
    spec = model_pb2.ModelSpec(name=version.model, signature_name=signature.name)
    spec.version.value = version.number
    log.predict_log.request.model_spec.CopyFrom(spec)
    log.predict_log.response.model_spec.CopyFrom(spec)
    for name, value in inputs.items():
        put(value, log.predict_log.request.inputs[name])
    for name, value in answers.items():
        put(value, log.predict_log.response.outputs[name])
    return log
