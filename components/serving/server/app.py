"""The server process: options, the REST API of TensorFlow Serving, start and stop.

The REST API is https://www.tensorflow.org/tfx/serving/api_rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from components import version_manifest as manifests
from components.errors import MachineError, PipelineError
from components.processes import signal_at_parents_death
from components.serving.server import grpc_service, json_codec, model_config
from components.serving.server.batching import BatchLimits
from components.serving.server.errors import InvalidRequestError, RequestError, SlowClientError
from components.serving.server.metrics import Metrics
from components.serving.server.model_config import ModelSource
from components.serving.server.model_manager import LoadOptions, ModelManager
from components.serving.server.predict_service import ModelRequest, PredictService
from components.serving.server.request_log import RequestLog

_MODEL = r"/v1/models/{model:[^/:]+}{version:(?:/versions/\d{1,18})?}{label:(?:/labels/[^/:]+)?}"
_DRAIN_SECONDS = 60.0
"""How long the server waits for requests in progress when it ends."""


class RestApi:
    """The REST API of a service.

    Args:
      service: answers requests.
      read_seconds: that a client may take to send a body.
    """

    def __init__(self, service: PredictService, read_seconds: float) -> None:
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
            body = json_codec.parse(await self._read(request))
            model, method = _model_request(request), request.match_info["method"]
            if "signature_name" in body:
                if not isinstance(body["signature_name"], str):
                    raise InvalidRequestError("signature_name: expected a string")
                model = model._replace(signature=body["signature_name"])
            if method == "predict":
                _, outputs = await self._service.predict(model, functools.partial(json_codec.inputs, body))
                return _json(json_codec.outputs(outputs, "instances" in body))
            call: Callable[..., Awaitable[tuple[Any, Any]]] = getattr(self._service, method)
            return _json({"result": (await call(model, json_codec.examples(body)))[1]})

    async def _read(self, request: web.Request) -> bytes:
        try:
            if request.content.is_eof():
                return await request.read()
            return await asyncio.wait_for(request.read(), self._read_seconds)
        except asyncio.TimeoutError:
            raise SlowClientError(f"expected the whole body within {self._read_seconds:g} s") from None
        except web.RequestPayloadError as error:
            raise InvalidRequestError(f"the body is not valid: {error}") from error

    async def _status(self, request: web.Request) -> web.Response:
        model = _model_request(request)
        status = [
            {
                "version": str(version.number),
                "state": ModelVersionStatus.State.Name(version.state),
                "status": {"error_code": "UNKNOWN" if version.error else "OK", "error_message": version.error},
            }
            for version in self._service.manager.status(model.model, model.version, model.label)
        ]
        return _json({"model_version_status": status})

    async def _metadata(self, request: web.Request) -> web.Response:
        model = _model_request(request)
        version = self._service.manager.find(model.model, model.version, model.label)
        with version as saved_model:
            definitions = saved_model.meta_graph.signature_def
            signatures = {
                name: json_format.MessageToDict(definitions[name], preserving_proto_field_name=True)
                for name in saved_model.signatures
            }
        spec = {"name": version.model, "signature_name": "", "version": str(version.number)}
        return _json({"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._service.metrics.text(), content_type="text/plain", charset="utf-8")


def _model_request(request: web.Request) -> ModelRequest:
    path = request.match_info
    version, label = path["version"].rpartition("/")[2], path["label"].rpartition("/")[2]
    return ModelRequest("REST", path["model"], int(version) if version else None, label or None)


def _json(value: Any, status: int = 200) -> web.Response:
    # NaN and Infinity are written as TensorFlow Serving writes them.
    return web.Response(body=json.dumps(value).encode(), status=status, content_type="application/json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.die_with_parent:
        signal_at_parents_death(signal.SIGKILL, options.die_with_parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s", force=True)
    # TensorFlow logs each file that it reads; gRPC and aiohttp log a traceback for each request that is not valid.
    for name, level in (("tensorflow", logging.ERROR), ("grpc", logging.CRITICAL), ("aiohttp", logging.CRITICAL)):
        logging.getLogger(name).setLevel(level)
    # Each connection is a file.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # The imported modules stay: the garbage collector need not examine them again and again.
    gc.freeze()
    # And few requests leave reference cycles: with less frequent collections, a gRPC request takes 8 % less CPU time.
    gc.set_threshold(20_000, 20, 20)
    try:
        # A quarter less CPU time per request than with the event loop of asyncio, on Python 3.10.
        uvloop.run(_serve(options))
    except PipelineError as error:
        logging.error("%s; %s", error.headline, error.remedy)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m components.serving.server")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; there is no authentication")
    add("--port", type=int, default=8500, help="of the gRPC API; 0: any free port")
    add("--rest_api_port", type=int, default=8501, help="of the REST API; 0: any free port")
    add("--model_name", help="name of the only model, with --model_base_path")
    add("--model_base_path", type=Path, help="its folder; the greatest version in it is served")
    add("--model_config_file", type=Path, help="several models, versions and labels: a ModelServerConfig")
    add("--allow_unverified", action="store_true", help="serve versions without a manifest.json, too")
    add("--reload_root", type=Path, metavar="FOLDER", help="accept HandleReloadConfigRequest for models in this folder")
    add("--file_system_poll_wait_seconds", type=float, default=1.0, help="between two checks for new versions")
    add("--enable_batching", action="store_true", help="join requests that arrive together")
    add("--max_batch_size", type=int, default=64, help="rows of a batch")
    add("--batch_timeout_micros", type=int, default=2000, help="how long the first request waits for others")
    cores = len(os.sched_getaffinity(0))
    add("--workers", type=int, default=cores, help="threads that run models; with batching, one less runs batches")
    add("--max_in_flight", type=int, default=256, help="requests in progress; more are rejected")
    add("--max_body_bytes", type=int, default=8 << 20, help="of a request")
    add("--read_timeout_seconds", type=float, default=10.0, help="that a client may take to send a request")
    add("--idle_timeout_seconds", type=float, default=75.0, help="until a connection without a request is closed")
    add("--request_log", type=Path, metavar="FOLDER", help="record requests and answers there")
    add("--request_log_rate", type=float, default=1.0, help="share of requests that are recorded")
    add("--request_log_max_bytes", type=int, default=1 << 30, help="of all files there; the oldest are deleted")
    add("--ready_file", type=Path, help="written when the server listens: its ports as JSON")
    add("--die_with_parent", type=int, metavar="PID", help="end when this parent process ends")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    for number in (options.rest_api_port, options.port):
        _check_free(options.host, number)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    # With batching, one core is left for the requests themselves: while it is busy, larger batches are gathered.
    concurrency = max(1, options.workers - options.enable_batching)
    threads = max(1, len(os.sched_getaffinity(0)) // concurrency)
    load = LoadOptions(manifests.signing_key(os.environ), options.allow_unverified, threads)
    manager = ModelManager(_sources(options), load)
    log = None
    if options.request_log:
        log = RequestLog(options.request_log, options.request_log_rate, options.request_log_max_bytes)
    metrics = Metrics(manager.all, lambda: log.dropped if log else 0)
    limits = BatchLimits(options.max_batch_size, options.batch_timeout_micros / 1e6, concurrency)
    batching = limits if options.enable_batching else None
    service = PredictService(manager, metrics, log, batching, options.workers, options.max_in_flight)
    manager.on_unload = service.remove
    read_seconds, max_bytes = options.read_timeout_seconds, options.max_body_bytes
    application = RestApi(service, read_seconds).application(max_bytes)
    rest = web.AppRunner(
        application, keepalive_timeout=options.idle_timeout_seconds, access_log=None, handler_cancellation=True
    )
    await rest.setup()
    site = web.TCPSite(rest, options.host, options.rest_api_port, backlog=1024)
    address = f"{options.host}:{options.port}"
    rpc, port = grpc_service.create_server(service, address, max_bytes, read_seconds, options.reload_root)
    await site.start()
    await rpc.start()
    rest_port = rest.addresses[0][1]
    logging.info("REST at %s:%d, gRPC at %s:%d", options.host, rest_port, options.host, port)
    if options.ready_file:
        _write_json(options.ready_file, {"pid": os.getpid(), "grpc_port": port, "rest_port": rest_port})
    watching = asyncio.create_task(manager.watch(options.file_system_poll_wait_seconds))
    await stop.wait()
    logging.info("no new requests are accepted; requests in progress are finished")
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    await site.stop()
    # In this order: aiohttp would no longer read the rest of a body.
    await asyncio.gather(service.finish(_DRAIN_SECONDS), rpc.stop(_DRAIN_SECONDS))
    await rest.cleanup()
    await manager.close()
    service.close()


def _check_free(host: str, port: int) -> None:
    """Raise MachineError unless the server can listen there. gRPC reports only that it could not bind."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        remedy = "end what listens there, or use another host or port (port 0: any free port)"
        raise MachineError(f"cannot listen at {host}:{port}: {error.strerror}", remedy) from error


def _sources(options: argparse.Namespace) -> Callable[[], Mapping[str, ModelSource]]:
    if options.model_config_file:
        return lambda: model_config.read(options.model_config_file)
    if not options.model_name or not options.model_base_path:
        raise SystemExit("expected --model_config_file, or --model_name and --model_base_path")
    return lambda: {options.model_name: ModelSource(options.model_base_path)}


def _write_json(file: Path, value: Mapping[str, int]) -> None:
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(json.dumps(value))
    temporary.replace(file)
