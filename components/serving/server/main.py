"""From TensorFlow Serving's flags to a server that listens, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvloop

from components import version
from components.errors import MachineError, PipelineError
from components.processes import signal_at_parents_death
from components.serving.server import grpc_api, sources
from components.serving.server.batching import Limits
from components.serving.server.http1 import Http
from components.serving.server.library import Library
from components.serving.server.metrics import Metrics
from components.serving.server.request_log import RequestLog
from components.serving.server.rest import Rest
from components.serving.server.room import Room
from components.serving.server.rpc import Rpc
from components.serving.server.service import Service
from components.serving.server.sources import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.die_with_parent:
        signal_at_parents_death(signal.SIGKILL, options.die_with_parent)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(message)s", force=True)
    # It tells of every file it reads, and that sessions are old.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # And gRPC of every request that is none, with a traceback.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    # Every client is a file, and so is every server of gRPC's: the usual 1,024 are soon used up.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # What was imported stays: there is no need to look through it for garbage again and again.
    gc.freeze()
    # And nearly all that a request leaves behind goes by itself.
    gc.set_threshold(20_000, 20, 20)
    try:
        # Under Python 3.10 a sixth more requests over gRPC than with asyncio's own loop, and a tenth more over REST.
        uvloop.run(_serve(options))
    except PipelineError as error:
        logging.error("%s; %s", error.headline, error.remedy)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m components.serving.server", description=__doc__)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at; nobody is asked for a password")
    add("--port", type=int, default=8500, help="of gRPC; 0: any that is free")
    add("--rest_api_port", type=int, default=8501, help="of REST; 0: any that is free")
    add("--model_name", help="name of the one model, with --model_base_path")
    add("--model_base_path", type=Path, help="its folder; the greatest version in it is served")
    add("--model_config_file", type=Path, help="several models, versions and labels: a ModelServerConfig")
    add("--file_system_poll_wait_seconds", type=float, default=1.0, help="between two looks for new versions")
    add("--enable_batching", action="store_true", help="join requests that arrive together")
    add("--max_batch_size", type=int, default=64, help="rows of a batch")
    add("--batch_timeout_micros", type=int, default=2000, help="how long the first one waits for others")
    cores = len(os.sched_getaffinity(0))
    add("--workers", type=int, default=cores, help="threads that run models; with batches, one is left for the rest")
    add("--max_in_flight", type=int, default=1024, help="requests at a time; more are refused")
    add("--max_body_bytes", type=int, default=8 << 20, help="of a request")
    add("--read_timeout_seconds", type=float, default=10.0, help="that a client may take to send one")
    add("--request_log", type=Path, help="folder to record requests in")
    add("--request_log_rate", type=float, default=1.0, help="share of requests that are recorded")
    add("--ready_file", type=Path, help="written when it listens: its ports as JSON")
    add("--die_with_parent", type=int, metavar="PID", help="end when this parent ends")
    return parser


async def _serve(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    # One core is left to what the requests themselves take: while it is busy, larger batches are gathered, and rows get
    # cheaper.
    at_once = max(1, options.workers - options.enable_batching)
    threads = max(1, len(os.sched_getaffinity(0)) // at_once)
    key = version.signing_key(os.environ)
    library = Library(_sources(options), options.file_system_poll_wait_seconds, key, threads)
    limits = Limits(options.max_batch_size, options.batch_timeout_micros / 1e6, at_once)
    log = RequestLog(options.request_log, options.request_log_rate) if options.request_log else None
    service = Service(
        library,
        limits if options.enable_batching else None,
        options.workers,
        options.max_in_flight,
        Metrics(library.all, lambda: log.dropped if log else 0),
        log,
    )
    library.forget = service.forget
    room = Room(options.max_body_bytes)
    rest = Http(Rest(service).answer, room, options.read_timeout_seconds)
    rpc = Rpc(grpc_api.services(service), room, options.read_timeout_seconds)
    rest_port = await _listen(rest, options.host, options.rest_api_port)
    port = await _listen(rpc, options.host, options.port)
    logging.info("REST at %s:%d, gRPC at %s:%d", options.host, rest_port, options.host, port)
    if options.ready_file:
        _write(options.ready_file, {"pid": os.getpid(), "grpc_port": port, "rest_port": rest_port})
    watching = asyncio.create_task(library.watch())
    await stop.wait()
    logging.info("no more requests are taken; those at hand are answered")
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    await asyncio.gather(rest.close(), rpc.close())
    await library.close()
    service.close()


async def _listen(server: Http | Rpc, host: str, port: int) -> int:
    try:
        return await server.listen(host, port)
    except OSError as error:
        # The loop's own text has the address in it once more, and the number of the error; of a name it has no number.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        remedy = "end what listens there, or name another host or port (port 0: any that is free)"
        raise MachineError(f"cannot listen at {host}:{port}: {reason}", remedy) from error


def _sources(options: argparse.Namespace) -> Callable[[], Mapping[str, Source]]:
    if options.model_config_file:
        return lambda: sources.read(options.model_config_file)
    if not options.model_name or not options.model_base_path:
        raise SystemExit("expected --model_config_file, or --model_name and --model_base_path")
    return lambda: {options.model_name: Source(options.model_base_path)}


def _write(file: Path, told: Mapping[str, int]) -> None:
    beside = file.with_name(f".{file.name}")
    beside.write_text(json.dumps(told))
    beside.replace(file)
