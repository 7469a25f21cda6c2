"""The server process: its options, start and stop."""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvloop
from aiohttp import web
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from components.base.errors import MachineError, PipelineError
from components.base.files import write_atomically
from components.base.processes import signal_at_parents_death
from components.results import model_signature
from components.serving.server import grpc_service
from components.serving.server.batching import BatchLimits
from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import ModelManager, load_verified, read_configs
from components.serving.server.request_log import RequestLog
from components.serving.server.rest_api import RestApi
from components.serving.server.service import Service

_DRAIN_SECONDS = 60.0
"""How long the server waits for requests in progress when it ends."""


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
    add("--model_base_path", help="its folder; the greatest version in it is served")
    add("--model_config_file", type=Path, help="several models, versions and labels: a ModelServerConfig")
    add("--allow_unverified", action="store_true", help="serve versions without a manifest.json, too")
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
    add("--request_log_key", default="", metavar="NAME", help="a column of requests that is only recorded")
    add("--request_log_max_bytes", type=int, default=1 << 30, help="of all files there; the oldest are deleted")
    add("--request_log_max_days", type=float, default=90.0, help="age of a file there; older ones are deleted")
    add("--ready_file", type=Path, help="written when the server listens: its ports as JSON")
    add("--die_with_parent", type=int, metavar="PID", help="end when this parent process ends")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    for number in (options.rest_api_port, options.port):
        # gRPC reports only that it could not bind.
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((options.host, number))
        except OSError as error:
            remedy = "end what listens there, or use another host or port (port 0: any free port)"
            raise MachineError(f"cannot listen at {options.host}:{number}: {error.strerror}", remedy) from error
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    # With batching, one core is left for the requests themselves: while it is busy, larger batches are gathered.
    concurrency = max(1, options.workers - options.enable_batching)
    threads = max(1, len(os.sched_getaffinity(0)) // concurrency)
    public_key = model_signature.key_file(os.environ)
    row_key = options.request_log_key
    load = functools.partial(load_verified, public_key, options.allow_unverified, threads, row_key=row_key)
    manager, log = ModelManager(_configs(options), load), None
    if options.request_log:
        log = RequestLog(
            options.request_log, options.request_log_rate, options.request_log_max_bytes, options.request_log_max_days
        )
    limits = BatchLimits(options.max_batch_size, options.batch_timeout_micros / 1e6, concurrency)
    service = Service(
        manager,
        Metrics(manager.all, lambda: log.dropped if log else 0),
        log,
        limits if options.enable_batching else None,
        workers=options.workers,
        max_in_flight=options.max_in_flight,
        read_seconds=options.read_timeout_seconds,
        key=row_key,
    )
    manager.on_unload = service.remove
    application, idle_seconds = RestApi(service).application(options.max_body_bytes), options.idle_timeout_seconds
    rest = web.AppRunner(application, keepalive_timeout=idle_seconds, access_log=None, handler_cancellation=True)
    await rest.setup()
    site = web.TCPSite(rest, options.host, options.rest_api_port, backlog=1024)
    rpc, port = grpc_service.create_server(service, f"{options.host}:{options.port}", options.max_body_bytes)
    await site.start()
    await rpc.start()
    rest_port = rest.addresses[0][1]
    logging.info("REST at %s:%d, gRPC at %s:%d", options.host, rest_port, options.host, port)
    if options.ready_file:
        ports = {"pid": os.getpid(), "grpc_port": port, "rest_port": rest_port}
        write_atomically(options.ready_file, json.dumps(ports))
    watching = asyncio.create_task(manager.watch(options.file_system_poll_wait_seconds))
    await stop.wait()
    logging.info("no new requests are accepted; requests in progress are finished")
    watching.cancel()
    await site.stop()
    # In this order: aiohttp would no longer read the rest of a body.
    await asyncio.gather(service.finish(_DRAIN_SECONDS), rpc.stop(_DRAIN_SECONDS))
    await rest.cleanup()
    if log:
        log.close()


def _configs(options: argparse.Namespace) -> Callable[[], Mapping[str, ModelConfig]]:
    if options.model_config_file:
        return functools.partial(read_configs, options.model_config_file)
    if not options.model_name or not options.model_base_path:
        raise SystemExit("expected --model_config_file, or --model_name and --model_base_path")
    config = ModelConfig(name=options.model_name, base_path=options.model_base_path)
    return lambda: {config.name: config}
