"""TensorFlow Serving's REST API: https://www.tensorflow.org/tfx/serving/api_rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from components.serving.server import json_tensors
from components.serving.server.refusal import RequestError, failed, invalid, overloaded
from components.serving.server.servable import Arrays, Signature
from components.serving.server.service import DEFAULT_SIGNATURE, Asked, Service

_IN_HAND = 16
"""Bodies of the greatest size that may be in memory at once."""
_SMALL = 1 << 16
"""Bytes of a body that is taken however many large ones there are."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Rest:
    """The REST API of a service.

    Args:
      service: answers.
      most_bytes: of a body.
      read_seconds: that a client may take to send a request.
    """

    def __init__(self, service: Service, most_bytes: int, read_seconds: float) -> None:
        self._service, self._most_bytes, self._read_seconds = service, most_bytes, read_seconds
        self._held = 0
        self._silent: dict[Any, asyncio.TimerHandle] = {}
        self._at_hand = 0
        self._answered = asyncio.Event()
        self._closing = False
        app = web.Application(middlewares=[self._refuse])
        model = "/v1/models/{model:[^/:]+}"
        for place in (model, model + r"/versions/{version:\d{1,18}}", model + "/labels/{label:[^/:]+}"):
            app.router.add_post(place + ":{method:predict|classify|regress}", self._answer)
            app.router.add_get(place, self._status)
            app.router.add_get(place + "/metadata", self._metadata)
        app.router.add_get("/monitoring/prometheus/metrics", self._metrics)
        # aiohttp would go on to unpack what has been refused as too large.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=read_seconds, auto_decompress=False)

    async def listen(self, host: str, port: int) -> int:
        """Starts to listen; returns the port.

        Raises:
          OSError: the port is taken.
        """
        await self._runner.setup()
        loop, make = asyncio.get_running_loop(), self._runner.server

        def protocol() -> asyncio.BaseProtocol:
            # aiohttp waits for the first request of a connection for ever.
            made = make()  # type: ignore[misc]
            self._silent[made] = loop.call_later(self._read_seconds, self._drop_silent, made)
            return made

        self._listener = await loop.create_server(protocol, host, port, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Takes no more connections, and waits for what is being answered."""
        self._closing = True
        self._listener.close()
        # Once aiohttp shuts down it reads nothing more, not even the rest of a body.
        await asyncio.sleep(0)
        if self._at_hand:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._answered.wait(), self._read_seconds)
        await self._runner.cleanup()

    def _drop_silent(self, protocol: Any) -> None:
        del self._silent[protocol]
        if protocol.transport is not None:
            protocol.transport.abort()

    @web.middleware
    async def _refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (timer := self._silent.pop(request.protocol, None)) is not None:
            timer.cancel()
        self._at_hand += 1
        try:
            answer = await handler(request)
        except RequestError as refused:
            answer = _json({"error": str(refused)}, refused.http)
        except web.HTTPException as error:
            answer = _json({"error": f"{request.method} {request.path}: {error.reason}"}, error.status)
        except Exception as error:
            answer = _json({"error": str(failed(error))}, 500)
        finally:
            self._at_hand -= 1
            if self._closing and not self._at_hand:
                self._answered.set()
        if self._closing:
            answer.force_close()
        return answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = bytearray()
        try:
            await self._read(request, body)
            return await self._told(request, json_tensors.parse(bytes(body)))
        finally:
            self._let_go(body)

    async def _told(self, request: web.Request, told: dict[str, Any]) -> web.StreamResponse:
        signature = told.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(signature, str):
            raise invalid("signature_name: expected a string")
        asked = _asked(request, signature)
        api = request.match_info["method"]
        if api == "predict":

            def inputs(signature: Signature) -> Arrays:
                return json_tensors.inputs(told, signature)

            _, answers = await self._service.predict(asked, "REST", inputs)
            return _json(json_tensors.outputs(answers, "instances" in told))
        call = self._service.classify if api == "classify" else self._service.regress
        _, result = await call(asked, "REST", json_tensors.examples(told))
        return _json({"result": result})

    async def _read(self, request: web.Request, body: bytearray) -> None:
        """Reads a body that is neither too long nor too slow, and counts it as held.

        Raises:
          RequestError: it is too slow, or broken, or there are too many.
          HTTPException: it is too long, or packed in another way than gzip.
        """

        async def read() -> None:
            async for chunk in request.content.iter_any():
                self._hold(body, chunk)

        if (request.content_length or 0) > self._most_bytes:
            raise web.HTTPRequestEntityTooLarge(self._most_bytes, request.content_length or 0)
        try:
            if request.content.is_eof():
                await read()
            else:
                await asyncio.wait_for(read(), self._read_seconds)
        except asyncio.TimeoutError as error:
            raise RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, "the body did not arrive in time") from error
        except web.RequestPayloadError as error:
            raise invalid(f"the body is broken: {error}") from error
        packed = request.headers.get("Content-Encoding", "identity")
        if packed == "gzip":
            content = self._unpacked(body)
            self._let_go(body)
            self._hold(body, content)
        elif packed != "identity":
            raise web.HTTPUnsupportedMediaType(reason="expected a body as it is, or gzip")

    def _hold(self, body: bytearray, content: bytes) -> None:
        body.extend(content)
        self._held += len(content)
        if len(body) > self._most_bytes:
            raise web.HTTPRequestEntityTooLarge(self._most_bytes, len(body))
        if len(body) > _SMALL and self._held > _IN_HAND * self._most_bytes:
            # At once, or the others that are being read would find no room either.
            self._let_go(body)
            raise overloaded("too many large requests are in memory; try again")

    def _let_go(self, body: bytearray) -> None:
        self._held -= len(body)
        body.clear()

    def _unpacked(self, body: bytearray) -> bytes:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            content = unpacker.decompress(body, self._most_bytes + 1)
        except zlib.error as error:
            raise invalid(f"the body is no gzip: {error}") from error
        if not unpacker.eof and len(content) <= self._most_bytes:
            raise invalid("the body is no whole gzip")
        return content

    async def _status(self, request: web.Request) -> web.StreamResponse:
        asked = _asked(request)
        versions = self._service.library.status(asked.model, asked.version, asked.label)
        told = [
            {
                "version": str(version.number),
                "state": ModelVersionStatus.State.Name(version.state),
                "status": {"error_code": "UNKNOWN" if version.error else "OK", "error_message": version.error},
            }
            for version in versions
        ]
        return _json({"model_version_status": told})

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        version, servable = self._service.servable(_asked(request))
        signatures = {
            name: json_format.MessageToDict(servable.meta_graph.signature_def[name], preserving_proto_field_name=True)
            for name in servable.signatures
        }
        spec = {"name": version.model, "signature_name": "", "version": str(version.number)}
        return _json({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})

    async def _metrics(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._service.metrics.text(), content_type="text/plain", charset="utf-8")


def _asked(request: web.Request, signature: str = DEFAULT_SIGNATURE) -> Asked:
    told = request.match_info
    version = int(told["version"]) if "version" in told else None
    return Asked(told["model"], version, told.get("label"), signature)


def _json(value: Any, status: int = 200) -> web.Response:
    # NaN and Infinity as TensorFlow Serving writes them.
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")
