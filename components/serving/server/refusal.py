"""Why a request is not answered, in the words of both APIs."""

from __future__ import annotations

import grpc

_HTTP = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
}
_LONGEST = 1000
"""Characters of a message: TensorFlow's may hold a whole graph, and gRPC sends it in a header."""


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
      code: gRPC's status.
      message: what was expected, and what was received.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…")
        self.code = code

    @property
    def http(self) -> int:
        """The status of the REST API."""
        return _HTTP.get(self.code, 500)


def invalid(message: str) -> RequestError:
    """The request itself is wrong."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> RequestError:
    """What it asks for is not there."""
    return RequestError(grpc.StatusCode.NOT_FOUND, message)


def overloaded(message: str) -> RequestError:
    """There is too much to do just now; the same request may be answered later."""
    return RequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def late(message: str) -> RequestError:
    """It takes too long to arrive."""
    return RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, message)


def failed(error: Exception) -> RequestError:
    """A failure that no request is to blame for."""
    return RequestError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
