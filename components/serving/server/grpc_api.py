"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from components.serving.server.library import Version
from components.serving.server.refusal import RequestError, failed, invalid
from components.serving.server.servable import Arrays, Signature
from components.serving.server.service import DEFAULT_SIGNATURE, Asked, Service
from components.serving.server.sources import sources
from components.serving.server.tensors import from_proto, to_proto

_UNKNOWN = 2
"""tensorflow.error.Code of a version that is not loaded."""

Answer = TypeVar("Answer")


async def listen(service: Service, host: str, port: int, most_bytes: int, most_at_once: int) -> tuple[Any, int]:
    """Starts to listen.

    Args:
      service: answers.
      host: the address to listen at.
      port: 0: any that is free.
      most_bytes: of a request.
      most_at_once: requests; gRPC refuses more by itself.

    Returns:
      The server and its port.

    Raises:
      OSError: the port is taken.
    """
    options = [("grpc.max_receive_message_length", most_bytes), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=most_at_once)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Prediction(service), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(_Model(service), server)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(f"port {port} of {host} cannot be listened at: {error}") from error
    await server.start()
    return server, bound


async def _told(context: Any, answer: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer, or the refusal in gRPC's way."""
    try:
        return await answer()
    except RequestError as refused:
        told = refused
    except Exception as error:
        told = failed(error)
    await context.abort(told.code, str(told))
    raise told


class _Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):  # type: ignore[misc]
    """Predict, Classify, Regress, GetModelMetadata."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        def inputs(_signature: Signature) -> Arrays:
            return {name: from_proto(proto) for name, proto in request.inputs.items()}

        async def answer() -> Any:
            asked = _asked(request.model_spec)
            version, answers = await self._service.predict(asked, "GRPC", inputs)
            wanted = request.output_filter or answers.keys()
            response = predict_pb2.PredictResponse()
            _tell(response.model_spec, version, asked.signature)
            for name in wanted:
                if name not in answers:
                    raise invalid(f"output_filter: there is no output {name!r}; known are {sorted(answers)}")
                response.outputs[name].CopyFrom(to_proto(answers[name]))
            return response

        return await _told(context, answer)

    async def Classify(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        async def answer() -> Any:
            asked = _asked(request.model_spec)
            version, rows = await self._service.classify(asked, "GRPC", _examples(request.input))
            response = classification_pb2.ClassificationResponse()
            _tell(response.model_spec, version, asked.signature)
            for row in rows:
                told = response.result.classifications.add()
                for label, score in row:
                    told.classes.add(label=label, score=score)
            return response

        return await _told(context, answer)

    async def Regress(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        async def answer() -> Any:
            asked = _asked(request.model_spec)
            version, values = await self._service.regress(asked, "GRPC", _examples(request.input))
            response = regression_pb2.RegressionResponse()
            _tell(response.model_spec, version, asked.signature)
            for value in values:
                response.result.regressions.add(value=value)
            return response

        return await _told(context, answer)

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        async def answer() -> Any:
            if list(request.metadata_field) != ["signature_def"]:
                raise invalid(f"metadata_field: expected signature_def, received {list(request.metadata_field)}")
            version, servable = self._service.servable(_asked(request.model_spec))
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name in servable.signatures:
                signatures.signature_def[name].CopyFrom(servable.meta_graph.signature_def[name])
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            _tell(response.model_spec, version, "")
            response.metadata["signature_def"].Pack(signatures)
            return response

        return await _told(context, answer)


class _Model(model_service_pb2_grpc.ModelServiceServicer):  # type: ignore[misc]
    """GetModelStatus, HandleReloadConfigRequest."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        async def answer() -> Any:
            asked = _asked(request.model_spec)
            response = get_model_status_pb2.GetModelStatusResponse()
            for version in self._service.library.status(asked.model, asked.version, asked.label):
                told = response.model_version_status.add(version=version.number, state=version.state)
                if version.error:
                    told.status.error_code = _UNKNOWN
                    told.status.error_message = version.error
            return response

        return await _told(context, answer)

    async def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        async def answer() -> Any:
            library = self._service.library
            library.replace_sources(sources(request.config))
            await library.look()
            return model_management_pb2.ReloadConfigResponse()

        return await _told(context, answer)


def _asked(spec: Any) -> Asked:
    number = spec.version.value if spec.HasField("version") else None
    return Asked(spec.name, number, spec.version_label or None, spec.signature_name or DEFAULT_SIGNATURE)


def _tell(spec: Any, version: Version, signature: str) -> None:
    spec.name, spec.version.value, spec.signature_name = version.model, version.number, signature


def _examples(given: Any) -> Any:
    """The tf.Examples of an Input, serialized, shape [batch]."""
    kind = given.WhichOneof("kind")
    if kind == "example_list_with_context":
        shared, each = given.example_list_with_context.context, given.example_list_with_context.examples
    else:
        shared, each = None, given.example_list.examples
    if not each:
        raise invalid("input: expected at least one example")
    found = np.empty(len(each), object)
    for number, example in enumerate(each):
        if shared is not None:
            # What the example itself says goes before what all share.
            whole = tf.train.Example()
            whole.CopyFrom(shared)
            for name, feature in example.features.feature.items():
                whole.features.feature[name].CopyFrom(feature)
            example = whole
        found[number] = example.SerializeToString()
    return found
