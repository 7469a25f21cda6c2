"""Errors that a client receives, with the status code of each API."""

from __future__ import annotations

import grpc

_MAX_LENGTH = 1000
"""Characters of a message. TensorFlow's can contain a whole graph, and gRPC sends the message in a header."""


class RequestError(Exception):
    """A request that cannot be answered because of a failure in the server.

    Args:
      message: what was expected and what was received; shortened to 1,000 characters.
    """

    code = grpc.StatusCode.INTERNAL
    http_status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_LENGTH else f"{message[:_MAX_LENGTH]}…")


class InvalidRequestError(RequestError):
    """The request itself is wrong."""

    code, http_status = grpc.StatusCode.INVALID_ARGUMENT, 400


class NotServedError(RequestError):
    """The requested model, version, label or method is not available."""

    code, http_status = grpc.StatusCode.NOT_FOUND, 404


class DisabledError(RequestError):
    """The server is configured not to do this."""

    code, http_status = grpc.StatusCode.PERMISSION_DENIED, 403


class OverloadedError(RequestError):
    """Too many requests are in progress; the same request can succeed later."""

    code, http_status = grpc.StatusCode.RESOURCE_EXHAUSTED, 429


class SlowClientError(RequestError):
    """The client did not send the whole request in time."""

    code, http_status = grpc.StatusCode.DEADLINE_EXCEEDED, 408
