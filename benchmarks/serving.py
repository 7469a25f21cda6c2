"""Compare the local server with another version of it, with itself without batching, and with MLServer.

python -m benchmarks.serving checkouts|throughput|overhead|mlserver [--rounds 5] [--models out/taxi/pushed]
  [--checkout FOLDER] [--mlserver PYTHON]

- `checkouts`: requests for one row from 32 connections, over REST and over gRPC, to this server and to the server of
  another checkout of the project (FOLDER, such as a git worktree of an earlier commit), both with batching.
- `throughput`: the same load with batches of up to 64 rows that wait at most 2 ms, and without batching.
- `overhead`: one request at a time over REST, against the same model called in a process, without pauses and with
  pauses of a millisecond. A server has such pauses between requests, and a core is slower after a pause.
- `mlserver`: requests for one row from 32 connections over REST, to our server and to MLServer with the same limits for
  its adaptive batching. PYTHON is the interpreter of an environment with mlserver and tensorflow, which cannot be
  installed together with tfx.

The row is the first warm-up row of the newest version of the model. The servers keep running between rounds. The load
comes from h2load (Debian: nghttp2-client), which supports both HTTP/1.1 and gRPC's HTTP/2, and needs little CPU time on
the cores that it shares with the server.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements, Spread, Work
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

_CONNECTIONS = 32
_BATCH = ("--enable_batching", "--max_batch_size=64", "--batch_timeout_micros=2000")
_UP_SECONDS = 120.0
_NAME = "taxi"


_PATHS = {
    "rest": f"/v1/models/{_NAME}:predict",
    "v2": f"/v2/models/{_NAME}/infer",
    "grpc": "/tensorflow.serving.PredictionService/Predict",
}
_HEADERS = {
    "rest": ("--h1", "--header=content-type: application/json"),
    "v2": ("--h1", "--header=content-type: application/json"),
    "grpc": ("--header=content-type: application/grpc", "--header=te: trailers"),
}


@dataclass(frozen=True)
class Load:
    """Throughput and latency that a load generator has measured.

    Attributes:
      requests: Number of answered requests.
      seconds: Time from the first request to the last response.
      p50_ms: Median latency in ms.
      p99_ms: 99th percentile of the latency in ms.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: float, took: Sequence[int]) -> Load:
        """Create a load from its duration in seconds, and the microseconds that the requests took."""
        hundredths = statistics.quantiles((microseconds / 1e3 for microseconds in took), n=100)
        return cls(len(took), seconds, round(hundredths[49], 3), round(hundredths[98], 3))

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
      process: Main process of the server.
      ports: API (rest, grpc, or v2 for MLServer) → port.
      counts: Whether the server has a metric with the number of requests.
    """

    process: psutil.Process
    ports: Mapping[str, int]
    counts: bool = False

    def cpu(self) -> float:
        """Return the CPU-seconds used so far, in nanosecond resolution; /proc has a resolution of 10 ms."""
        tree = [self.process, *self.process.children(recursive=True)]
        # clock_getcpuclockid(3) computes the clock ID from the PID in this way on Linux.
        return sum(time.clock_gettime(~process.pid << 3 | 2) for process in tree)

    def done(self) -> int:
        """Return the number of successful requests so far; 0 if the server does not count them."""
        if not self.counts:
            return 0
        text = _get(f"http://127.0.0.1:{self.ports['rest']}/monitoring/prometheus/metrics") or b""
        return sum(
            int(float(count)) for count in re.findall(rb'^:\S*request_count\{.*status="OK".*\} (\S+)$', text, re.M)
        )

    def memory_mb(self) -> float:
        """Return the resident memory in MiB."""
        return float(self.process.memory_info().rss / 2**20)


@dataclass(frozen=True)
class Bench:
    """Settings of the benchmark.

    Attributes:
      models: The push folder.
      scratch: Folder for logs.
      rounds: Number of runs per side.
      requests: Number of requests per side and round.
      mlserver: Interpreter of MLServer's environment. If None, `mlserver` cannot be run.
      checkout: Another checkout of the project. If None, `checkouts` cannot be run.
    """

    models: Path
    scratch: Path
    rounds: int
    requests: int
    mlserver: str | None = None
    checkout: Path | None = None

    @property
    def version(self) -> Path:
        """The newest version of the model."""
        versions = sorted(
            (folder for folder in self.models.iterdir() if folder.name.isdecimal()), key=lambda folder: int(folder.name)
        )
        if not versions or not (versions[-1] / "assets.extra/tf_serving_warmup_requests").exists():
            raise SystemExit(f"{self.models}: expected a version that was warmed up; `make run` pushes one")
        return versions[-1]

    def body(self, api: str) -> Path:
        """Return the path of a file with a request for a row in the format of an API."""
        file = self.scratch / api
        if not file.exists():
            arguments = ["benchmarks.serving_program", "request", str(self.version), str(self.scratch)]
            subprocess.run([sys.executable, "-m", *arguments], check=True, stdout=sys.stderr)
        return file

    @contextlib.contextmanager
    def ours(self, *options: str, checkout: Path | None = None) -> Iterator[Server]:
        """Start the server of this checkout or of another checkout, and wait until the model is loaded."""
        ready = self.scratch / f"ready-{'-'.join(options)}{'-other' if checkout else ''}.json"
        command = [sys.executable, "-m", "components.serving.server", "--port=0", "--rest_api_port=0"]
        command += [
            f"--model_name={_NAME}",
            f"--model_base_path={self.models.absolute()}",
            f"--ready_file={ready}",
            *options,
        ]
        with self._start(command, ready.with_suffix(".log"), {}, checkout) as process:
            _until(ready.exists, process)
            ports = json.loads(ready.read_text())
            status = f"http://127.0.0.1:{ports['rest_port']}/v1/models/{_NAME}"
            _until(lambda: b"AVAILABLE" in (_get(status) or b""), process)
            yield Server(psutil.Process(process.pid), {"rest": ports["rest_port"], "grpc": ports["grpc_port"]}, True)

    @contextlib.contextmanager
    def mlserver_process(self) -> Iterator[Server]:
        """Start MLServer with the same limits for batches, and wait until the model is loaded."""
        if self.mlserver is None:
            raise SystemExit("expected --mlserver, the interpreter of an environment with mlserver and tensorflow")
        folder = self.scratch / "mlserver"
        folder.mkdir()
        http, grpc, metrics = _free_ports(3)
        settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
        settings |= {"parallel_workers": 0, "debug": False, "access_log_format": None, "logging_settings": None}
        model = {
            "name": _NAME,
            "implementation": "benchmarks.serving_mlserver.Model",
            "max_batch_size": 64,
            "max_batch_time": 0.002,
            "parameters": {"uri": str(self.version.absolute())},
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "model-settings.json").write_text(json.dumps(model))
        command = [self.mlserver, "-m", "mlserver.cli.main", "start", str(folder)]
        with self._start(command, self.scratch / "mlserver.log", {"PYTHONPATH": str(Path.cwd())}) as process:
            _until(lambda: _get(f"http://127.0.0.1:{http}/v2/models/{_NAME}/ready") is not None, process)
            yield Server(psutil.Process(process.pid), {"v2": http})

    @contextlib.contextmanager
    def _start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path | None = None
    ) -> Iterator[Any]:
        with log.open("wb") as output:
            environment = {**os.environ, **environment}
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder)
        try:
            yield process
        except TimeoutError as error:
            raise RuntimeError(f"{shlex.join(command)}: {error}:\n{log.read_text(errors='replace')[-2000:]}") from error
        finally:
            process.kill()
            process.wait()

    def side(self, server: Server, api: str, connections: int, loads: list[Load]) -> Callable[[int], Measurement]:
        """Return a function that sends requests to a server, and appends the load to `loads`."""
        times, log = self.scratch / "times", self.scratch / "load.log"
        command = ["h2load", f"--requests={self.requests}", f"--clients={connections}", "--max-concurrent-streams=1"]
        command += [f"--data={self.body(api)}", f"--log-file={times}", *_HEADERS[api]]
        command.append(f"http://127.0.0.1:{server.ports[api]}{_PATHS[api]}")

        def run(_number: int) -> Measurement:
            times.unlink(missing_ok=True)
            before, done = server.cpu(), server.done()
            whole = measure.run(command, log)
            cpu = server.cpu() - before
            # A line has the start time, HTTP status (gRPC's status is in the trailers) and duration of a request.
            sent, statuses, took = zip(
                *(map(int, line.split()) for line in times.read_text().splitlines()), strict=True
            )
            counts = (statuses.count(200), server.done() - done if server.counts else self.requests)
            if counts != (self.requests, self.requests):
                raise RuntimeError(
                    f"{api}: of {self.requests} requests, {counts[0]} were answered, {counts[1]} successfully"
                )
            seconds = (max(map(sum, zip(sent, took, strict=True))) - min(sent)) / 1e6
            loads.append(Load.of(seconds, took))
            work = Work(self.requests, round(seconds, 3), round(cpu, 6), round(server.memory_mb(), 1))
            return Measurement(whole.wall, whole.cpu, whole.peak_mb, work)

        return run

    def in_process(self, pause: float, loads: list[Load]) -> Callable[[int], Measurement]:
        """Return a function that calls the model in a separate process, row by row, and appends the load to `loads`."""
        command = [sys.executable, "-m", "benchmarks.serving_program", "call", str(self.requests), str(self.version)]
        command.append(str(pause))

        def run(_number: int) -> Measurement:
            log = self.scratch / "call.log"
            measured = measure.run(command, log)
            took = json.loads(log.read_text().splitlines()[-1])["took"]
            loads.append(Load.of(sum(took) / 1e6, took))
            return measured

        return run


def checkouts(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare the servers of two checkouts, over both APIs."""
    if bench.checkout is None:
        raise SystemExit("expected --checkout, the folder of another checkout of the project")
    loads: dict[str, list[Load]] = defaultdict(list)
    with bench.ours(*_BATCH) as this, bench.ours(*_BATCH, checkout=bench.checkout) as other_server:
        sides = {}
        for api in ("rest", "grpc"):
            for server, which in ((this, "this"), (other_server, "other")):
                name = f"{api}, {which}"
                sides[name] = bench.side(server, api, _CONNECTIONS, loads[name])
        measured = measure.in_turns(sides, bench.rounds, warm_up=1)
    loads = {name: rounds[1:] for name, rounds in loads.items()}
    facts = _latencies(loads)
    for api in ("rest", "grpc"):
        this_name, other_name = f"{api}, this", f"{api}, other"
        facts[f"{api}: requests/s, this / other"] = _times(loads[this_name], loads[other_name])
        cpu = measure.ratio(measured[this_name], measured[other_name], "work.cpu")
        facts[f"{api}: CPU-seconds of the server, this / other"] = cpu
    return measured, facts


def throughput(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare the server with and without batching, over both APIs."""
    loads: dict[str, list[Load]] = defaultdict(list)
    with bench.ours(*_BATCH) as batching, bench.ours() as alone:
        sides = {}
        for api in ("rest", "grpc"):
            for server, how in ((alone, "alone"), (batching, "in batches")):
                name = f"{api}, {how}"
                sides[name] = bench.side(server, api, _CONNECTIONS, loads[name])
        measured = measure.in_turns(sides, bench.rounds, warm_up=1)
    loads = {name: rounds[1:] for name, rounds in loads.items()}
    facts = _latencies(loads)
    for api in ("rest", "grpc"):
        facts[f"{api}: requests/s in batches / alone (expected: at least 4)"] = _times(
            loads[f"{api}, in batches"], loads[f"{api}, alone"]
        )
        facts[f"{api}: CPU-seconds of the server, alone / in batches"] = measure.ratio(
            measured[f"{api}, alone"], measured[f"{api}, in batches"], "work.cpu"
        )
    return measured, facts


def overhead(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare single requests with calls of the model in a process."""
    loads: dict[str, list[Load]] = defaultdict(list)
    with bench.ours() as alone, bench.ours(*_BATCH) as batching:
        sides = {
            "rest": bench.side(alone, "rest", 1, loads["rest"]),
            "rest, in batches": bench.side(batching, "rest", 1, loads["rest, in batches"]),
            "in a process": bench.in_process(0.0, loads["in a process"]),
            "in a process, with pauses": bench.in_process(0.001, loads["in a process, with pauses"]),
        }
        measured = measure.in_turns(sides, bench.rounds, warm_up=1)
    loads = {name: rounds[1:] for name, rounds in loads.items()}
    facts = _latencies(loads)
    for name, call in itertools.product(("rest", "rest, in batches"), ("in a process", "in a process, with pauses")):
        facts[f"{name}: median ms over the call {call} (expected: at most 1)"] = Spread.of(
            over.p50_ms - under.p50_ms for over, under in zip(loads[name], loads[call], strict=True)
        )
    return measured, facts


def mlserver(bench: Bench) -> tuple[Measurements, Facts]:
    """Compare our server with MLServer."""
    loads: dict[str, list[Load]] = defaultdict(list)
    with bench.ours(*_BATCH) as ours, bench.mlserver_process() as theirs:
        sides = {
            "ours": bench.side(ours, "rest", _CONNECTIONS, loads["ours"]),
            "MLServer": bench.side(theirs, "v2", _CONNECTIONS, loads["MLServer"]),
        }
        measured = measure.in_turns(sides, bench.rounds, warm_up=1)
    loads = {name: rounds[1:] for name, rounds in loads.items()}
    ratio = "ours / MLServer: requests/s (expected: at least 3)"
    return measured, _latencies(loads) | {ratio: _times(loads["ours"], loads["MLServer"])}


def _latencies(loads: Mapping[str, Sequence[Load]]) -> Facts:
    facts: Facts = {}
    for name, rounds in loads.items():
        facts[f"{name}: requests/s"] = Spread.of(load.rate for load in rounds)
        facts[f"{name}: median ms"] = Spread.of(load.p50_ms for load in rounds)
        facts[f"{name}: 99th percentile, ms"] = Spread.of(load.p99_ms for load in rounds)
    return facts


def _times(over: Sequence[Load], under: Sequence[Load]) -> Spread:
    return Spread.of(more.rate / less.rate for more, less in zip(over, under, strict=True))


def _get(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=_UP_SECONDS) as answer:  # noqa: S310 - our own
            content: bytes = answer.read()
            return content
    except (urllib.error.URLError, ConnectionError):
        return None


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _UP_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise TimeoutError(f"expected a running server within {_UP_SECONDS:g} s")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [socket_.getsockname()[1] for socket_ in sockets]


BENCHMARKS: dict[str, Callable[[Bench], tuple[Measurements, Facts]]] = {
    "checkouts": checkouts,
    "throughput": throughput,
    "overhead": overhead,
    "mlserver": mlserver,
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="runs of each side")
    parser.add_argument("--requests", type=positive, default=10_000, help="requests per side and round")
    parser.add_argument("--models", type=Path, default=Path(f"out/{_NAME}/pushed"), help="the push folder")
    parser.add_argument("--checkout", type=Path, help="another checkout of the project")
    parser.add_argument("--mlserver", help="the interpreter of MLServer's environment")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    if shutil.which("h2load") is None:
        raise SystemExit("expected h2load on the path; Debian has it in nghttp2-client")
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(
            options.models, Path(scratch), options.rounds, options.requests, options.mlserver, options.checkout
        )
        measured, facts = BENCHMARKS[options.benchmark](bench)
    # These paths differ between machines.
    paths = {options.mlserver: "PYTHON", str(options.checkout): "FOLDER"}
    command = f"python -m benchmarks.serving {shlex.join(paths.get(argument, argument) for argument in arguments)}"
    print(measure.record(f"serving_{options.benchmark}", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
