"""The REST API of TensorFlow Serving, https://www.tensorflow.org/tfx/serving/api_rest."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from typing import Any

from aiohttp import web
from google.protobuf import json_format
from grpc import StatusCode
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus
from tensorflow_serving.apis.model_pb2 import ModelSpec

from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.service import Service, requested_version

_MODEL = r"/v1/models/{model:[^/:]+}{version:(?:/versions/\d{1,18})?}{label:(?:/labels/[^/:]+)?}"


class RestApi:
    """The handlers of the REST API.

    Args:
      service: answers requests.
      read_seconds: that a client may take to send a body.
    """

    def __init__(self, service: Service, read_seconds: float) -> None:
        self._service, self._read_seconds = service, read_seconds

    def application(self, max_bytes: int) -> web.Application:
        """Return the application, which accepts bodies of at most so many bytes, also after decompression."""
        application = web.Application(middlewares=[self._handle_errors], client_max_size=max_bytes)
        application.router.add_post(_MODEL + ":{method:predict|classify|regress}", self._run)
        application.router.add_get(_MODEL, self._status)
        application.router.add_get(f"{_MODEL}/metadata", self._metadata)
        application.router.add_get("/monitoring/prometheus/metrics", self._metrics)
        return application

    @web.middleware
    async def _handle_errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except RequestError as error:
            response = _json({"error": str(error)}, error.http_status)
        except web.HTTPException as error:
            response = _json({"error": f"{request.method} {request.path[:100]}: {error.text}"}, error.status)
        except Exception as error:
            logging.exception("a REST request failed")
            response = _json({"error": f"{type(error).__name__}: {error}"}, 500)
        if self._service.stopping:
            response.force_close()
        return response

    async def _run(self, request: web.Request) -> web.Response:
        with self._service.admit("REST"):
            body, spec = json_codec.parse(await self._read(request)), _model_spec(request)
            try:
                spec.signature_name = body.get("signature_name", "")
            except (TypeError, ValueError) as error:
                raise RequestError(f"signature_name: expected a string: {error}") from error
            if request.match_info["method"] == "predict":
                inputs = functools.partial(json_codec.inputs, body)
                _, outputs = await self._service.run(spec, "REST", "predict", inputs)
                return _json(json_codec.outputs(outputs, "instances" in body))
            # The messages of both methods have the same fields.
            message = ClassificationRequest(model_spec=spec, input=json_codec.examples(body))
            if request.match_info["method"] == "regress":
                values = (await self._service.regress(message, "REST")).result.regressions
                return _json({"result": [each.value for each in values]})
            rows = (await self._service.classify(message, "REST")).result.classifications
            return _json({"result": [[[each.label, each.score] for each in row.classes] for row in rows]})

    async def _read(self, request: web.Request) -> bytes:
        try:
            if request.content.is_eof():
                return await request.read()
            return await asyncio.wait_for(request.read(), self._read_seconds)
        except asyncio.TimeoutError:
            message = f"expected the whole body within {self._read_seconds:g} s"
            raise RequestError(message, StatusCode.DEADLINE_EXCEEDED) from None
        except web.RequestPayloadError as error:
            raise RequestError(f"the body is not valid: {error}") from error

    async def _status(self, request: web.Request) -> web.Response:
        status = [
            {
                "version": str(version.number),
                "state": ModelVersionStatus.State.Name(version.state),
                "status": {"error_code": "UNKNOWN" if version.error else "OK", "error_message": version.error},
            }
            for version in self._service.manager.status(*requested_version(_model_spec(request)))
        ]
        return _json({"model_version_status": status})

    async def _metadata(self, request: web.Request) -> web.Response:
        message = GetModelMetadataRequest(model_spec=_model_spec(request), metadata_field=["signature_def"])
        response, signatures = await self._service.metadata(message), SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        name, version = response.model_spec.name, response.model_spec.version.value
        spec = {"name": name, "signature_name": "", "version": str(version)}
        signature_def = json_format.MessageToDict(signatures, preserving_proto_field_name=True)
        return _json({"model_spec": spec, "metadata": {"signature_def": signature_def}})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._service.metrics.text(), content_type="text/plain", charset="utf-8")


def _model_spec(request: web.Request) -> ModelSpec:
    path = request.match_info
    version, label = path["version"].rpartition("/")[2], path["label"].rpartition("/")[2]
    # Not decoded where it is not UTF-8, so a message can hold it.
    spec = ModelSpec(name=path["model"], version_label=label or None)
    if version and not label:
        spec.version.value = int(version)
    return spec


def _json(value: Any, status: int = 200) -> web.Response:
    # NaN and Infinity are written as TensorFlow Serving writes them.
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")
