"""The gRPC APIs: TensorFlow Serving's PredictionService and ModelService, and the Open Inference Protocol."""

from __future__ import annotations

import functools
import logging
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from components.serving.server.errors import RequestError
from components.serving.server.inference_grpc import InferenceGrpc
from components.serving.server.inference_service import InferenceService
from components.serving.server.service import Service


def create_server(service: Service, address: str, max_bytes: int) -> tuple[grpc.aio.Server, int]:
    """Create the gRPC server without starting it.

    Args:
      service: Implementation of the methods.
      address: `host:port` to listen on; port 0 selects any free port.
      max_bytes: Maximum size of a request in bytes.

    Returns:
      The server and its port.
    """
    handshake = ("grpc.server_handshake_timeout_ms", round(1000 * service.read_seconds))
    options = [("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0), handshake]
    server = grpc.aio.server(options=options, interceptors=[_Interceptor(service)])
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(service, server)
    server.add_generic_rpc_handlers((InferenceGrpc(InferenceService(service)).create_handler(),))
    return server, server.add_insecure_port(address)


class _Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Turns every unary method into a method that receives a stream of one message.

    gRPC reads the message of a unary method without a timeout, so a slow client could keep a request open forever.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handlers: dict[str, Any] = {}

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        if details.method not in self._handlers:
            if (method := await continuation(details)) is None or method.request_streaming:
                return method
            answer, serialize = functools.partial(self._answer, method), method.response_serializer
            self._handlers[details.method] = grpc.stream_unary_rpc_method_handler(answer, response_serializer=serialize)
        return self._handlers[details.method]

    async def _read_request(self, method: Any, context: grpc.aio.ServicerContext) -> Any:
        # A separate function, so that the bytes of the message are freed before the request is answered.
        with self._service.count_rejections("GRPC"):
            message = await self._service.read(context.read())
            if message is grpc.aio.EOF:
                raise RequestError("expected a message, received an empty stream")
            try:
                return method.request_deserializer(message)
            except DecodeError as error:
                raise RequestError(f"expected a message of the method: {error}") from error

    async def _answer(self, method: Any, _messages: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            with self._service.admit("GRPC"):
                return await method.unary_unary(await self._read_request(method, context), context)
        except RequestError as error:
            code, text = error.code, str(error)
        except NotImplementedError:
            code, text = StatusCode.UNIMPLEMENTED, "this server does not have the method"
        except grpc.aio.BaseError:
            raise
        except Exception as error:
            logging.exception("a gRPC request failed")
            code, text = StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
        # abort() would keep the request alive in a traceback. gRPC ignores the return value if the code is not OK.
        context.set_code(code)
        context.set_details(text)
        return None
