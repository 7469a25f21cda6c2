"""The gRPC API of TensorFlow Serving: PredictionService and ModelService."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from components.serving.server.errors import RequestError
from components.serving.server.service import Service


def create_server(service: Service, address: str, max_bytes: int, read_seconds: float) -> tuple[grpc.aio.Server, int]:
    """Create the server; it is not started.

    Args:
      service: answers requests.
      address: host:port; port 0 for any free port.
      max_bytes: of a request.
      read_seconds: that a client may take to send a request.

    Returns:
      The server and its port.
    """
    handshake = ("grpc.server_handshake_timeout_ms", round(1000 * read_seconds))
    options = [("grpc.max_receive_message_length", max_bytes), ("grpc.so_reuseport", 0), handshake]
    server = grpc.aio.server(options=options)
    for name, methods in {
        "tensorflow.serving.PredictionService": {
            "Predict": (PredictRequest, service.predict),
            "Classify": (ClassificationRequest, service.classify),
            "Regress": (RegressionRequest, service.regress),
            "GetModelMetadata": (GetModelMetadataRequest, service.metadata),
        },
        "tensorflow.serving.ModelService": {
            "GetModelStatus": (GetModelStatusRequest, service.status),
            "HandleReloadConfigRequest": (ReloadConfigRequest, service.reload),
        },
    }.items():
        # As methods of a stream of one message: of a unary method, gRPC reads the message itself, without a timeout.
        handlers = {
            method: grpc.stream_unary_rpc_method_handler(functools.partial(_answer, service, read_seconds, *each))
            for method, each in methods.items()
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers)])
    return server, server.add_insecure_port(address)


async def _answer(
    service: Service,
    read_seconds: float,
    message_type: Any,
    method: Callable[[Any], Awaitable[Any]],
    _messages: Any,
    context: grpc.aio.ServicerContext,
) -> bytes:
    # With a status set, gRPC ignores the empty answer. Unlike abort(), this leaves no traceback that holds the request.
    try:
        with service.admit("GRPC"):
            answer = await method(message_type.FromString(await _read(context, read_seconds)))
            return bytes(answer.SerializeToString())
    except DecodeError as error:
        code, text = StatusCode.INVALID_ARGUMENT, f"expected a {message_type.__name__}: {error}"
    except RequestError as error:
        code, text = error.code, str(error)
    except grpc.aio.BaseError:
        raise
    except Exception as error:
        logging.exception("a gRPC request failed")
        code, text = StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
    context.set_code(code)
    context.set_details(text)
    return b""


async def _read(context: grpc.aio.ServicerContext, seconds: float) -> bytes:
    try:
        message = await asyncio.wait_for(context.read(), seconds)
    except asyncio.TimeoutError:
        code = StatusCode.DEADLINE_EXCEEDED
        raise RequestError(f"expected the whole message within {seconds:g} s", code) from None
    if message is grpc.aio.EOF:
        raise RequestError("expected a message, received none")
    return bytes(message)
