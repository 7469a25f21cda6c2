"""TensorFlow Serving's gRPC API: PredictionService and ModelService."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from components.serving.server.library import Version
from components.serving.server.refusal import invalid
from components.serving.server.rpc import Method
from components.serving.server.servable import Arrays, Signature
from components.serving.server.service import DEFAULT_SIGNATURE, Asked, Service
from components.serving.server.sources import sources
from components.serving.server.tensors import from_proto, put

_UNKNOWN = 2
"""tensorflow.error.Code of a version that is not loaded."""


def services(service: Service) -> Mapping[str, Mapping[str, Method]]:
    """The services by their names, and of each its methods."""
    api = _Api(service)
    return {
        "tensorflow.serving.PredictionService": {
            "Predict": api.predict,
            "Classify": api.classify,
            "Regress": api.regress,
            "GetModelMetadata": api.metadata,
        },
        "tensorflow.serving.ModelService": {
            "GetModelStatus": api.status,
            "HandleReloadConfigRequest": api.reload,
        },
    }


class _Api:
    """The methods of both services: a serialized request → its answer, serialized."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def predict(self, message: bytes) -> bytes:
        request = _read(predict_pb2.PredictRequest, message)
        asked = _asked(request.model_spec)
        version, answers = await self._service.predict(asked, "GRPC", functools.partial(_inputs, request.inputs))
        wanted = request.output_filter or answers
        if unknown := [name for name in wanted if name not in answers]:
            raise invalid(f"output_filter: there is no output {unknown[0]!r}; known are {sorted(answers)}")
        # Joined, serialized messages are one that has all their fields.
        spec = _told(version.model, version.number, asked.signature)
        return b"".join([spec, *[_output(name, answers[name]) for name in wanted]])

    async def classify(self, message: bytes) -> bytes:
        request = _read(classification_pb2.ClassificationRequest, message)
        asked = _asked(request.model_spec)
        version, rows = await self._service.classify(asked, "GRPC", _examples(request.input))
        response = classification_pb2.ClassificationResponse()
        _tell(response.model_spec, version, asked.signature)
        for row in rows:
            told = response.result.classifications.add()
            for label, score in row:
                told.classes.add(label=label, score=score)
        return bytes(response.SerializeToString())

    async def regress(self, message: bytes) -> bytes:
        request = _read(regression_pb2.RegressionRequest, message)
        asked = _asked(request.model_spec)
        version, values = await self._service.regress(asked, "GRPC", _examples(request.input))
        response = regression_pb2.RegressionResponse()
        _tell(response.model_spec, version, asked.signature)
        for value in values:
            response.result.regressions.add(value=value)
        return bytes(response.SerializeToString())

    async def metadata(self, message: bytes) -> bytes:
        request = _read(get_model_metadata_pb2.GetModelMetadataRequest, message)
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid(f"metadata_field: expected signature_def, received {list(request.metadata_field)}")
        version, servable = self._service.servable(_asked(request.model_spec))
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name in servable.signatures:
            signatures.signature_def[name].CopyFrom(servable.meta_graph.signature_def[name])
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        _tell(response.model_spec, version, "")
        response.metadata["signature_def"].Pack(signatures)
        return bytes(response.SerializeToString())

    async def status(self, message: bytes) -> bytes:
        request = _read(get_model_status_pb2.GetModelStatusRequest, message)
        asked = _asked(request.model_spec)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._service.library.status(asked.model, asked.version, asked.label):
            told = response.model_version_status.add(version=version.number, state=version.state)
            if version.error:
                told.status.error_code = _UNKNOWN
                told.status.error_message = version.error
        return bytes(response.SerializeToString())

    async def reload(self, message: bytes) -> bytes:
        request = _read(model_management_pb2.ReloadConfigRequest, message)
        library = self._service.library
        library.replace_sources(sources(request.config))
        await library.look()
        return bytes(model_management_pb2.ReloadConfigResponse().SerializeToString())


def _read(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise invalid(f"expected a {kind.__name__}: {error}") from error


def _asked(spec: Any) -> Asked:
    number = spec.version.value if spec.HasField("version") else None
    return Asked(spec.name, number, spec.version_label or None, spec.signature_name or DEFAULT_SIGNATURE)


def _inputs(protos: Any, _signature: Signature) -> Arrays:
    # Not by items(), which is slow: Python's own, for anything that is a mapping.
    return {name: from_proto(protos[name]) for name in protos}


def _tell(spec: Any, version: Version, signature: str) -> None:
    spec.name, spec.version.value, spec.signature_name = version.model, version.number, signature


@functools.lru_cache(maxsize=256)
def _told(model: str, version: int, signature: str) -> bytes:
    """A serialized PredictResponse that says who has answered, and no more."""
    response = predict_pb2.PredictResponse()
    response.model_spec.name, response.model_spec.version.value = model, version
    response.model_spec.signature_name = signature
    return bytes(response.SerializeToString())


def _output(name: str, array: Any) -> bytes:
    """A serialized PredictResponse of one output, and no more."""
    if array.dtype != object:
        return _before(name, array.dtype, array.shape) + bytes(array.tobytes())
    response = predict_pb2.PredictResponse()
    put(array, response.outputs[name])
    return bytes(response.SerializeToString())


@functools.lru_cache(maxsize=1024)
def _before(name: str, dtype: Any, shape: tuple[int, ...]) -> bytes:
    """What of an output of numbers stands before the numbers, which come last and are always as long."""
    response = predict_pb2.PredictResponse()
    zeros = np.zeros(shape, dtype)
    put(zeros, response.outputs[name])
    whole = bytes(response.SerializeToString())
    return whole[: len(whole) - zeros.nbytes]


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
