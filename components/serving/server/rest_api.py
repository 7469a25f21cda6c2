"""The application with the REST APIs: TensorFlow Serving's, and the Open Inference Protocol.

TensorFlow Serving documents its API at https://www.tensorflow.org/tfx/serving/api_rest.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from aiohttp import hdrs, web
from google.protobuf import json_format
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec

from components.serving.server import json_codec
from components.serving.server.errors import RequestError
from components.serving.server.inference_rest import InferenceRest
from components.serving.server.inference_service import InferenceService
from components.serving.server.rest_messages import create_error, create_response, read_body
from components.serving.server.service import Service

_MODEL = "/v1/models/{model:[^/:]+}"
_MODELS = (_MODEL, f"{_MODEL}/versions/{{version:[0-9]{{1,18}}}}", f"{_MODEL}/labels/{{label:[^/:]+}}")


class RestApi:
    """Handles the requests of the REST API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def application(self, max_bytes: int) -> web.Application:
        """Create the application. It rejects bodies of more than `max_bytes`, before or after decompression."""
        application = web.Application(middlewares=[self._handle_errors], client_max_size=max_bytes)
        router = application.router
        router.add_get("/monitoring/prometheus/metrics", self._metrics)
        for model in _MODELS:
            router.add_post(f"{model}:predict", self._predict)
            router.add_get(model, self._status)
            router.add_get(f"{model}/metadata", self._metadata)
        InferenceRest(InferenceService(self._service)).add_routes(router)
        return application

    @web.middleware
    async def _handle_errors(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except RequestError as error:
            response = create_error(error.http_status, str(error))
        except web.HTTPException as error:
            response = create_error(error.status, f"{request.method} {request.path[:100]}: {error.text}")
            # RFC 9110 requires it with status 405.
            if hdrs.ALLOW in error.headers:
                response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        except Exception as error:
            logging.exception("a REST request failed")
            response = create_error(500, f"{type(error).__name__}: {error}")
        if self._service.stopping:
            response.force_close()
        return response

    async def _predict(self, request: web.Request) -> web.Response:
        with self._service.admit("REST"):
            with self._service.count_rejections("REST"):
                body = json_codec.parse(await read_body(self._service, request))
                spec = _model_spec(request)
                try:
                    spec.signature_name = body.get("signature_name", "")
                except (TypeError, ValueError) as error:
                    raise RequestError(f"signature_name: expected a string: {error}") from error
            read = functools.partial(json_codec.inputs, body, key=self._service.key)
            *_, outputs = await self._service.run(spec, "REST", read, json_codec.column_names(body))
            return create_response(json_codec.outputs(outputs, "instances" in body))

    async def _status(self, request: web.Request) -> web.Response:
        answer = _to_dict(await self._service.GetModelStatus(GetModelStatusRequest(model_spec=_model_spec(request))))
        # MessageToDict omits fields with their default value, but TensorFlow Serving returns them.
        status = {"error_code": "OK", "error_message": ""}
        versions = answer["model_version_status"]
        versions = [{"version": "0", **version, "status": status | version["status"]} for version in versions]
        return create_response({"model_version_status": versions})

    async def _metadata(self, request: web.Request) -> web.Response:
        message = GetModelMetadataRequest(model_spec=_model_spec(request), metadata_field=["signature_def"])
        answer = _to_dict(await self._service.GetModelMetadata(message))
        answer["model_spec"]["signature_name"] = ""
        del answer["metadata"]["signature_def"]["@type"]
        return create_response(answer)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._service.read_metrics(), content_type="text/plain", charset="utf-8")


def _model_spec(request: web.Request) -> ModelSpec:
    path = request.match_info
    # aiohttp leaves bytes that are not UTF-8 percent-encoded, so the name is always valid text for the message.
    version = {"value": int(path["version"])} if "version" in path else None
    return ModelSpec(name=path["model"], version=version, version_label=path.get("label"))


def _to_dict(message: Any) -> dict[str, Any]:
    return dict(json_format.MessageToDict(message, preserving_proto_field_name=True))
