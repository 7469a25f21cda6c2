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
from components.compat.aiohttp import Runner
from components.data.private_columns import HASH, PrivateColumns
from components.results import model_signature
from components.results.log_secret import SECRET_ENVIRONMENT, read_secret
from components.serving.log_options import parse_bytes, parse_days, parse_private, parse_share
from components.serving.server import grpc_service
from components.serving.server.batching import BatchLimits
from components.serving.server.isolated_model import Isolation
from components.serving.server.logs import configure_logging
from components.serving.server.metrics import Metrics
from components.serving.server.model_manager import ModelManager, load_verified, read_configs
from components.serving.server.request_log import RequestLog
from components.serving.server.rest_api import RestApi
from components.serving.server.rest_messages import create_error
from components.serving.server.service import Service

_DRAIN_SECONDS = 60.0
"""Longest time that the server waits for requests in progress when it stops."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    options = _create_parser().parse_args(arguments)
    configure_logging()
    # Every connection needs a file descriptor.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # The imported modules stay in memory, so the garbage collector need not examine them in every collection.
    gc.freeze()
    # Few requests leave reference cycles: with less frequent collections, a gRPC request takes 8 % less CPU time.
    gc.set_threshold(20_000, 20, 20)
    try:
        # On Python 3.10, uvloop takes a quarter less CPU time per request than the event loop of asyncio.
        uvloop.run(_serve(options))
    except PipelineError as error:
        logging.error("%s; %s", error.headline, error.remedy)
        return error.exit_code
    return 0


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m components.serving.server")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; there is no authentication")
    add("--port", type=int, default=8500, help="port of the gRPC API; 0 selects any free port")
    add("--rest_api_port", type=int, default=8501, help="port of the REST API; 0 selects any free port")
    add("--model_name", help="name of the only model, with --model_base_path")
    add("--model_base_path", help="folder of that model; its greatest version is served")
    add("--model_config_file", type=Path, help="ModelServerConfig that lists models, versions, labels")
    add("--allow_unverified", action="store_true", help="also serve versions without a manifest.json")
    add("--isolate_versions", action="store_true", help="load each version in a process of its own")
    add("--max_version_bytes", type=int, help="memory of such a process, above which it is killed and started again")
    add("--file_system_poll_wait_seconds", type=float, default=1.0, help="time between checks for versions")
    add("--enable_batching", action="store_true", help="join requests that arrive together")
    add("--max_batch_size", type=int, default=64, help="maximum number of rows of a batch")
    add("--batch_timeout_micros", type=int, default=2000, help="longest wait of a batch's first request")
    cores = len(os.sched_getaffinity(0))
    add("--workers", type=int, default=cores, help="threads that run models; with batching, one fewer")
    add("--max_in_flight", type=int, default=256, help="requests in progress; more are rejected")
    add("--max_body_bytes", type=int, default=8 << 20, help="maximum size of a request")
    add("--read_timeout_seconds", type=float, default=10.0, help="longest time to receive a request")
    add("--idle_timeout_seconds", type=float, default=75.0, help="time until an idle connection is closed")
    add("--request_log", type=Path, metavar="FOLDER", help="record requests and responses in this folder")
    add("--request_log_rate", type=parse_share, default=1.0, help="share of requests that are recorded, from 0 to 1")
    add("--request_log_key", default="", metavar="NAME", help="a column of requests that is only recorded")
    text = "hash or drop the values of a column of requests in the log; hash needs the secret in " + SECRET_ENVIRONMENT
    add("--request_log_private", type=parse_private, action="append", default=[], metavar="NAME=ACTION", help=text)
    text = "maximum size of the log; the oldest files are deleted"
    add("--request_log_max_bytes", type=parse_bytes, default=1 << 30, help=text)
    text = "maximum age of a log file; older files are deleted"
    add("--request_log_max_days", type=parse_days, default=90.0, help=text)
    add("--ready_file", type=Path, help="file that receives the ports as JSON once the server listens")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    for number in (options.rest_api_port, options.port):
        # Bind before gRPC does, because gRPC does not report why it could not bind.
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
    # With batching, leave one core for handling requests: while the other cores are busy, larger batches accumulate.
    concurrency = max(1, options.workers - options.enable_batching)
    threads = max(1, len(os.sched_getaffinity(0)) // concurrency)
    public_key, row_key = model_signature.key_file(os.environ), options.request_log_key
    # Requests of one version may occupy all threads that run models.
    isolation = Isolation(options.workers, options.max_version_bytes) if options.isolate_versions else None
    load = functools.partial(
        load_verified, public_key, options.allow_unverified, threads, row_key=row_key, isolation=isolation
    )
    manager = ModelManager(_config_source(options), load)
    private = _read_private_columns(options)
    log = options.request_log and RequestLog(
        options.request_log, options.request_log_rate, options.request_log_max_bytes, options.request_log_max_days
    )
    limits = BatchLimits(options.max_batch_size, options.batch_timeout_micros / 1e6, concurrency)
    service = Service(
        manager,
        Metrics(manager.all, lambda: log.dropped if log else 0),
        log,
        limits if options.enable_batching else None,
        options.workers,
        options.max_in_flight,
        options.read_timeout_seconds,
        row_key,
        private,
    )
    manager.on_unload, manager.on_failure = service.remove, service.remove_batchers
    application, idle_seconds = RestApi(service).application(options.max_body_bytes), options.idle_timeout_seconds
    rest_runner = Runner(
        application, create_error, keepalive_timeout=idle_seconds, access_log=None, handler_cancellation=True
    )
    await rest_runner.setup()
    site = web.TCPSite(rest_runner, options.host, options.rest_api_port, backlog=1024)
    rpc, port = grpc_service.create_server(service, f"{options.host}:{options.port}", options.max_body_bytes)
    await site.start()
    await rpc.start()
    rest_port = rest_runner.addresses[0][1]
    logging.info("REST at %s:%d, gRPC at %s:%d", options.host, rest_port, options.host, port)
    if options.ready_file:
        ports = {"pid": os.getpid(), "grpc_port": port, "rest_port": rest_port}
        write_atomically(options.ready_file, json.dumps(ports))
    seconds = options.file_system_poll_wait_seconds
    tasks = [asyncio.create_task(work) for work in (manager.watch(seconds), manager.supervise(min(seconds, 1.0)))]
    await stop.wait()
    logging.info("no new requests are accepted; requests in progress are finished")
    for task in tasks:
        task.cancel()
    await site.stop()
    # Clean up aiohttp last, because after its cleanup it does not read the rest of a request body.
    await asyncio.gather(service.finish(_DRAIN_SECONDS), rpc.stop(_DRAIN_SECONDS))
    await rest_runner.cleanup()
    if log:
        log.close()


def _read_private_columns(options: argparse.Namespace) -> PrivateColumns | None:
    """Return the columns that the log does not record as they are; None without a log or such a column."""
    actions = dict(options.request_log_private)
    if not options.request_log or not actions:
        return None
    return PrivateColumns(actions, read_secret(os.environ) if HASH in actions.values() else b"")


def _config_source(options: argparse.Namespace) -> Callable[[], Mapping[str, ModelConfig]]:
    if options.model_config_file:
        return functools.partial(read_configs, options.model_config_file)
    if not options.model_name or not options.model_base_path:
        raise SystemExit("expected --model_config_file, or --model_name and --model_base_path")
    config = ModelConfig(name=options.model_name, base_path=options.model_base_path)
    return lambda: {config.name: config}
