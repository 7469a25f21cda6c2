"""What a thousand workers would meet: calculated and simulated on paper, from what one machine measures.

python -m benchmarks.scale [measure [--rounds 5]]

Without `measure` it prints the tables of docs/scale.md, always the same ones, from the record in results/; with it, it
makes that record: how fast a checkpoint is written and read, how long the steps of a large DLRM take and how much that
varies, and how much of it falls to workers, parameter servers and their chief (scale_program.py, and a cluster of
training_program.py). What cannot be measured on one machine is assumed, and stands below with its source.

A worker is one core of the measured machine. One that has more cores, or a GPU, takes a step in less time, and so
needs as much more of networks and servers.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements, Spread
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

Floats: TypeAlias = npt.NDArray[np.float64]

WORKERS = 1_000
BATCH = 8_192
TABLES, WIDTH, NUMBERS, HIDDEN = 8, 32, 13, (512, 256, 128)
SMALL, LARGE = 1_000_000, 1_000_000_000
"""Rows of all tables together: of the model that is measured, and of one for which parameter servers are made."""

GBITS = (10, 25, 100)
NETWORK = 25
"""Gbit/s of every machine, where one figure has to do."""
SERVER_GB, SERVER_CORES = 64, 16
"""Memory and cores of a parameter server."""
LOAD = 0.5
"""How much of a server's network and cores may be in use on average."""
RESTART = 300.0
"""Seconds from a failure until a machine in its place has joined; the reading of the checkpoint comes on top."""
FAILURES = {
    "1, an optimistic round number": 1e-3,
    # 419 unexpected interruptions in 54 days on 16,384 GPUs, 8 in a machine: Llama Team 2024, The Llama 3 Herd of
    # Models, section 3.3.4.
    "3.8, Llama 3": 419 / 54 / (16_384 / 8),
    # Over 100 hosts replaced in two months on 992 GPUs, 8 in a machine: Zhang et al. 2022, OPT: Open Pre-trained
    # Transformer Language Models, section 2.5.
    "13, OPT-175B": 100 / 60 / (992 / 8),
}
"""Failures of a machine in a day; called by how many there are in a thousand."""
USUAL = "3.8, Llama 3"
COUNTS = (8, 32, 128, 256, 512, WORKERS)
"""Numbers of workers whose steps per second are calculated and simulated."""
SLOW = 0.01
"""The share of workers at half the speed, where there are stragglers."""
CALL_MEASURED, CALL = 10, 100
"""`training.steps_per_execution` with which the chief was measured, and with which it is calculated."""
FAILED_JOBS = {100: 0.078, 1_000: 0.137, 10_000: 0.247}
"""Machine-hours of a job → share of such jobs that failed, in three months of a data center: Li et al. 2014, Scaling
Distributed Machine Learning with the Parameter Server, table 1."""
PUBLISHED: tuple[tuple[str, str, str, str, tuple[int, int] | None], ...] = (
    (
        "[Goyal et al. 2017](https://arxiv.org/abs/1706.02677), abstract",
        "synchronous, all-reduce; ResNet-50",
        "8 to 256 GPUs",
        "efficiency ~90 %",
        (8, 256),
    ),
    (
        "[Horovod's benchmarks](https://github.com/horovod/horovod/blob/master/docs/benchmarks.rst), of the system of "
        "[Sergeev & Del Balso 2018](https://arxiv.org/abs/1802.05799)",
        "synchronous, ring all-reduce, 25 Gbit/s; Inception V3 and ResNet-101",
        "512 GPUs, 4 in a machine",
        "efficiency 90 %",
        (1, 512),
    ),
    ("the same", "the same; VGG-16", "512 GPUs, 4 in a machine", "efficiency 68 %", (1, 512)),
    (
        "[Jiang et al. 2020](https://www.usenix.org/conference/osdi20/presentation/jiang), abstract",
        "synchronous; servers that only sum (BytePS), against all-reduce and against parameter servers",
        "up to 256 GPUs",
        "up to 84 % and 245 % faster",
        None,
    ),
    (
        "[Li et al. 2014, NIPS](https://www.cs.cmu.edu/~muli/file/parameter_server_nips14.pdf)",
        "asynchronous, parameter servers, 10 Gbit/s; logistic regression with 65 billion features",
        "1,000 machines with 16 cores",
        "636 TB of examples",
        None,
    ),
)
"""What others have measured: source, what was measured, number of workers, the figure; and the two numbers of workers
whose rates per worker are compared, if the figure is an efficiency of synchronous steps."""

STEPS_FILE = "steps.json"
_FLOAT, _ID = 4, 8
_STATES = 3
"""A weight, and Adam's two moments of it."""
_DAY = 86_400.0
_DAYS = 1_000
_DRAWS = 200
_QUEUE_STEPS, _QUEUE_WARM_UP = 30, 2
_SEED = 1
_STEPS, _CLUSTER_STEPS = 60, 120
_RECORD = "scale"


@dataclass(frozen=True)
class SliceMetrics:
    """What one machine measured: medians of its record's facts.

    Attributes:
      write: MB/s of a checkpoint, to the disk.
      read: MB/s, from the disk.
      step: CPU-ms of a step in one process.
      spread: the standard deviation of the logarithms of the steps' CPU-ms.
      worker: CPU-ms of a step beside parameter servers that fall to its worker.
      server: CPU-ms that fall to the servers, all together.
      chief: CPU-ms that fall to the chief.
    """

    write: float
    read: float
    step: float
    spread: float
    worker: float
    server: float
    chief: float

    @classmethod
    def of(cls, record: Path) -> SliceMetrics:
        """Reads the record that `measure` wrote."""
        facts = json.loads(record.read_text())["facts"]
        return cls(*(facts[_FACTS[field.name]]["median"] for field in fields(cls)))


_FACTS = {
    "write": "checkpoint, MB/s written",
    "read": "checkpoint, MB/s read",
    "step": "one process, CPU-ms per step",
    "spread": "one process, standard deviation of the logarithms of the steps' CPU-ms",
    "worker": "parameter_server, CPU-ms per step of the workers",
    "server": "parameter_server, CPU-ms per step of the ps",
    "chief": "parameter_server, CPU-ms per step of the chief",
}


@dataclass(frozen=True)
class Dlrm:
    """The measured DLRM, with so many rows in its tables."""

    rows: int

    @property
    def dense(self) -> int:
        """Bytes of the networks' weights: numbers up to a vector; it and the products up to the logit."""
        return sum(self.kernels)

    @property
    def kernels(self) -> list[int]:
        """Bytes of each layer, its kernel and its bias."""
        products = (TABLES + 1) * TABLES // 2
        networks = ((NUMBERS, *HIDDEN, WIDTH), (WIDTH + products, *HIDDEN, 1))
        pairs = itertools.chain.from_iterable(itertools.pairwise(network) for network in networks)
        return [_FLOAT * (below + 1) * above for below, above in pairs]

    @property
    def checkpoint(self) -> int:
        """Bytes of the weights and of Adam's moments: what a checkpoint holds, and whoever holds all variables."""
        return _STATES * (_FLOAT * self.rows * WIDTH + self.dense)

    @property
    def unique(self) -> float:
        """Rows that a batch names, each counted once, if all ids are as frequent as each other: the worst case."""
        each = self.rows / TABLES
        return -TABLES * each * math.expm1(BATCH * math.log1p(-1 / each))

    def beside_servers(self) -> float:
        """Bytes of a worker's step: ids sent and rows pulled, unique rows pushed, the networks both ways.

        TensorFlow looks a row up as often as the batch names it; gradients are summed by row before they are pushed.
        """
        row = _FLOAT * WIDTH + _ID
        return BATCH * TABLES * row + self.unique * row + 2 * self.dense

    def in_step(self, workers: int) -> float:
        """Bytes that each of so many workers receives in a step: a ring all-reduce of the networks' gradients, and
        an all-gather of those of the tables, which are summed by row only after it.
        """
        gathered = (workers - 1) * BATCH * TABLES * (_FLOAT * WIDTH + _ID)
        return 2 * (workers - 1) / workers * self.dense + gathered


@dataclass(frozen=True)
class Plan:
    """A thousand workers under a strategy: how long they take, and what has to be restarted together.

    Attributes:
      label: strategy and rows.
      step: seconds of a worker's step, without waiting.
      network: seconds of it on the network.
      slowest: times a step's mean that the slowest of those takes on whom the others wait.
      updates: optimizer steps, as the config counts them, in the time of one worker's step.
      save: seconds of a checkpoint.
      restart: seconds from a failure until training goes on.
      together: tasks of which the loss of any restarts all.
      alone: tasks that are restarted alone.
    """

    label: str
    step: float
    network: float
    slowest: float
    updates: int
    save: float
    restart: float
    together: int
    alone: int

    def interval(self, failures: float) -> float:
        """Seconds of work between two checkpoints that cost least: Young 1974, A First Order Approximation to the
        Optimum Checkpoint Interval; Daly 2006 refines it where a checkpoint takes long beside the time to a failure.
        """
        return math.sqrt(2 * self.save * _DAY / (self.together * failures))

    def every_steps(self, failures: float) -> int:
        """The same as `checkpoint.every_steps`, to two digits."""
        steps = self.interval(failures) / (self.step * self.slowest + self.network) * self.updates
        return int(float(f"{steps:.1e}"))


@dataclass(frozen=True)
class Shares:
    """Where the time of a day goes, of all workers; together they are 1.

    Attributes:
      saving: in checkpoints.
      restarting: from failures to new starts.
      repeated: in steps that no checkpoint had seen.
      waiting: of the rest, on the network and on the slowest worker.
      useful: what is left.
    """

    saving: float
    restarting: float
    repeated: float
    waiting: float
    useful: float


def slowest(spread: float, workers: int, draws: int = 2_000) -> float:
    """How many times the mean the longest of so many log-normal times is, on average."""
    random = np.random.default_rng(_SEED)
    longest = [random.standard_normal(workers).max() for _ in range(draws)]
    return float(np.exp(spread * np.array(longest)).mean() / math.exp(spread**2 / 2))


def servers(model: Dlrm, measured: SliceMetrics, workers: int = WORKERS) -> dict[str, int]:
    """How many parameter servers memory, network and cores require."""
    seconds = measured.worker / 1e3
    bytes_per_second = workers * model.beside_servers() / seconds
    cores = workers * measured.server / measured.worker
    return {
        "memory": math.ceil(model.checkpoint / (SERVER_GB * 1e9)),
        "network": math.ceil(bytes_per_second / (LOAD * NETWORK / 8 * 1e9)),
        "cores": math.ceil(cores / (LOAD * SERVER_CORES)),
    }


def busiest(model: Dlrm, measured: SliceMetrics, count: int) -> float:
    """Gbit/s at the server with the largest kernel: tables are cut into shards, but a kernel lies whole on one."""
    largest = _kernels(model, min(count, len(model.kernels))).max() + _shards(model, count)
    return WORKERS * float(largest) / (measured.worker / 1e3) * 8 / 1e9


def by_server(model: Dlrm, count: int) -> Floats:
    """Bytes of a worker's step at each server, the busiest first: shards of the tables, and whole kernels."""
    return np.sort(_kernels(model, count) + _shards(model, count))[::-1]


def _kernels(model: Dlrm, count: int) -> Floats:
    """Bytes of the kernels at each server: each is put on the one that has the least, the largest kernel first."""
    kernels: Floats = np.zeros(count)
    for size in sorted(model.kernels, reverse=True):
        kernels[kernels.argmin()] += 2 * size
    return kernels


def _shards(model: Dlrm, count: int) -> float:
    """Bytes of the tables' shards at each server."""
    return (model.beside_servers() - 2 * model.dense) / count


@dataclass(frozen=True)
class Rates:
    """Steps per second of all workers together.

    Attributes:
      bounds: what limits it → the limit.
      simulated: without stragglers beyond the measured spread of the steps.
      straggling: simulated, with one worker in a hundred, at least one, at half the speed.
    """

    bounds: dict[str, float]
    simulated: float
    straggling: float

    @property
    def limit(self) -> str:
        """What limits it."""
        return min(self.bounds, key=self.bounds.__getitem__)


def rates_beside_servers(model: Dlrm, measured: SliceMetrics, workers: int, count: int) -> Rates:
    """Workers beside so many servers; calculated by the bounds of operational analysis: Denning & Buzen 1978, The
    Operational Analysis of Queueing Network Models: all workers without waiting, or the busiest station fully busy.
    """
    seconds, size = measured.worker / 1e3, model.beside_servers()
    station = _services(model, measured, count).max()
    bounds = {
        "workers": workers / (seconds + _seconds(size, NETWORK)),
        "busiest ps": 1 / float(station),
        "chief": CALL / CALL_MEASURED / (measured.chief / 1e3),
    }
    return Rates(bounds, *(queue(model, measured, workers, count, slow) for slow in (0.0, SLOW)))


def _services(model: Dlrm, measured: SliceMetrics, count: int) -> Floats:
    """Seconds that a worker's step takes at each server, whose network and cores work at the same time."""
    network = by_server(model, count) * 8 / (NETWORK * 1e9)
    return np.maximum(network, measured.server / 1e3 / count / SERVER_CORES)


def queue(model: Dlrm, measured: SliceMetrics, workers: int, count: int, slow: float) -> float:
    """Steps per second in a simulation: a worker pulls from all servers, computes, and pushes to all.

    A server serves one message after the other in the order of arrival, half of a step's bytes for each pull and each
    push. Computation takes a log-normal time with the measured spread.

    Args:
      model: the bytes.
      measured: the times.
      workers: how many.
      count: servers.
      slow: the share of workers that compute at half the speed.
    """
    random = np.random.default_rng(_SEED)
    service = _services(model, measured, count) / 2
    own = _seconds(model.beside_servers(), NETWORK) / 2
    speed = np.ones(workers)
    speed[: math.ceil(slow * workers)] = 2.0
    compute = measured.worker / 1e3 * speed * _log_normal(random, measured.spread, (_QUEUE_STEPS, workers))
    free = np.zeros(count)
    # (time of arrival, worker, messages so far); at the start, the workers are spread over a step.
    arrivals = [(float(random.uniform(0, each)), worker, 0) for worker, each in enumerate(compute[0])]
    heapq.heapify(arrivals)
    ends: list[float] = []
    begin = 0
    while True:
        now, worker, messages = heapq.heappop(arrivals)
        free = np.maximum(free, now) + service
        done = max(float(free.max()), now + own)
        step, is_push = divmod(messages, 2)
        if is_push:
            ends.append(done)
            # From the first worker's third step, when the queues have their usual length, to its last one.
            if step == _QUEUE_WARM_UP and not begin:
                begin = len(ends)
            if step == _QUEUE_STEPS - 1:
                return (len(ends) - begin) / (done - ends[begin - 1])
        heapq.heappush(arrivals, (done if is_push else done + float(compute[step, worker]), worker, messages + 1))


def rates_in_step(size: float, measured: SliceMetrics, workers: int) -> Rates:
    """Synchronous workers that each receive so many bytes in a step; a step of all counts as one of each.

    Calculated with Blom's approximation of the largest of normal values: Blom 1958, Statistical Estimates and
    Transformed Beta-Variables.
    """
    seconds, network = measured.step / 1e3, _seconds(size, NETWORK)
    largest = statistics.NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
    longest = math.exp(measured.spread * largest - measured.spread**2 / 2)
    random = np.random.default_rng(_SEED)
    times = _log_normal(random, measured.spread, (_DRAWS, workers))
    slow = times * np.where(np.arange(workers) < math.ceil(SLOW * workers), 2.0, 1.0)
    simulated = (workers / (seconds * each.max(axis=1).mean() + network) for each in (times, slow))
    return Rates({"slowest worker and network": workers / (seconds * longest + network)}, *map(float, simulated))


def _log_normal(random: np.random.Generator, spread: float, shape: tuple[int, int]) -> Floats:
    """Log-normal values with mean 1."""
    values: Floats = random.lognormal(-(spread**2) / 2, spread, shape)
    return values


def beside_servers(model: Dlrm, measured: SliceMetrics) -> Plan:
    """A thousand workers beside as many servers as they need; each server writes and reads its own shards."""
    count = max(servers(model, measured).values())
    return Plan(
        label=f"parameter_server, {_power(model)} rows, {count} ps",
        step=measured.worker / 1e3,
        network=_seconds(model.beside_servers(), NETWORK),
        slowest=1.0,
        updates=WORKERS,
        save=model.checkpoint / count / measured.write / 1e6,
        restart=RESTART + model.checkpoint / count / measured.read / 1e6,
        together=count + 1,
        alone=WORKERS,
    )


def in_step(model: Dlrm, measured: SliceMetrics) -> Plan:
    """A thousand workers in step; each writes and reads all of a checkpoint."""
    return Plan(
        label=f"multi_worker, {_power(model)} rows",
        step=measured.step / 1e3,
        network=_seconds(model.in_step(WORKERS), NETWORK),
        slowest=slowest(measured.spread, WORKERS),
        updates=1,
        save=model.checkpoint / measured.write / 1e6,
        restart=RESTART + model.checkpoint / measured.read / 1e6,
        together=WORKERS,
        alone=0,
    )


def day(plan: Plan, failures: float, random: np.random.Generator) -> Shares:
    """One day of a thousand workers, drawn at random.

    Args:
      plan: what they do.
      failures: of a task, in a day.
      random: failures come at exponential distances.
    """
    interval, now, worked, saving, restarting, repeated = plan.interval(failures), 0.0, 0.0, 0.0, 0.0, 0.0
    while now < _DAY:
        failure = now + random.exponential(_DAY / (plan.together * failures))
        cycles, rest = divmod(min(failure, _DAY) - now, interval + plan.save)
        worked += cycles * interval
        saving += cycles * plan.save + max(0.0, rest - interval)
        now = failure + plan.restart
        if failure < _DAY:
            repeated += min(rest, interval)
            restarting += min(plan.restart, _DAY - failure)
        else:
            worked += min(rest, interval)
    lost_alone = random.poisson(plan.alone * failures) * plan.restart / WORKERS
    restarting += lost_alone
    worked -= lost_alone
    useful = worked * plan.step / (plan.step * plan.slowest + plan.network)
    return Shares(*(seconds / _DAY for seconds in (saving, restarting, repeated, worked - useful, useful)))


def tables(measured: SliceMetrics) -> list[str]:
    """The tables of docs/scale.md, as Markdown."""
    plans = [
        in_step(Dlrm(SMALL), measured),
        beside_servers(Dlrm(SMALL), measured),
        beside_servers(Dlrm(LARGE), measured),
    ]
    return [
        _traffic(),
        _servers(measured),
        _rates(measured),
        _published(measured),
        _slowest(measured),
        _intervals(plans),
        _failed_jobs(),
        _days(plans),
    ]


def _traffic() -> str:
    small, large = Dlrm(SMALL), Dlrm(LARGE)
    moved = {
        f"parameter_server, {_power(small)} rows, any number": small.beside_servers(),
        f"parameter_server, {_power(large)} rows, any number": large.beside_servers(),
    }
    moved |= {f"multi_worker, {workers:,} workers": small.in_step(workers) for workers in (2, 32, WORKERS)}
    rows = (
        [name, f"{size / 1e6:,.1f}", *(f"{_seconds(size, speed) * 1e3:,.0f}" for speed in GBITS)]
        for name, size in moved.items()
    )
    return _table(["a worker's step", "MB", *(f"ms at {speed} Gbit/s" for speed in GBITS)], rows)


def _servers(measured: SliceMetrics) -> str:
    rows = []
    for model in (Dlrm(SMALL), Dlrm(LARGE)):
        needed = servers(model, measured)
        count = max(needed.values())
        speed = f"{busiest(model, measured, count):.0f}"
        seconds = (f"{model.checkpoint / each / measured.write / 1e6:,.2f}" for each in (1, count))
        chief = f"{WORKERS * measured.chief / measured.worker:.1f}"
        size = f"{model.checkpoint / 1e9:,.1f}"
        rows.append([_power(model), size, *map(str, needed.values()), speed, chief, *seconds])
    head = ["rows", "GB with Adam's moments", *(f"ps for {what}" for what in ("memory", "network", "cores"))]
    return _table(
        [*head, "Gbit/s of the busiest", "cores of the chief", "s to save, one writer", "s to save, all ps"], rows
    )


def _rates(measured: SliceMetrics) -> str:
    small = Dlrm(SMALL)
    rows = []
    for workers in COUNTS:
        count = max(servers(small, measured, workers).values())
        dense = 2 * (workers - 1) / workers * small.dense
        halved = queue(small, measured, workers, math.ceil(count / 2), 0.0)
        for name, size, rates, fewer in (
            (
                f"parameter_server, {count} ps",
                small.beside_servers(),
                rates_beside_servers(small, measured, workers, count),
                f"{halved:,.1f}",
            ),
            ("multi_worker", small.in_step(workers), rates_in_step(small.in_step(workers), measured, workers), ""),
            ("multi_worker, no tables", dense, rates_in_step(dense, measured, workers), ""),
        ):
            calculated, simulated, straggling = (
                f"{each:,.1f}" for each in (rates.bounds[rates.limit], rates.simulated, rates.straggling)
            )
            efficiency = f"{100 * rates.simulated * measured.step / 1e3 / workers:.0f} %"
            cells = [f"{workers:,}", name, f"{size / 1e6:,.1f}", calculated, rates.limit, simulated, efficiency]
            rows.append([*cells, straggling, fewer])
    head = ["workers", "strategy", "MB of a worker's step", "steps/s, calculated", "limit", "steps/s, simulated"]
    return _table([*head, "efficiency", "with stragglers", "with half the ps"], rows)


def _published(measured: SliceMetrics) -> str:
    def per_worker(workers: int) -> float:
        size = 2 * (workers - 1) / workers * Dlrm(SMALL).dense
        return rates_in_step(size, measured, workers).simulated / workers

    rows = []
    for *cells, compared in PUBLISHED:
        here = f"{100 * per_worker(compared[1]) / per_worker(compared[0]):.0f} %" if compared else ""
        rows.append([*cells, here])
    head = ["source", "what was measured", "workers", "figure", "simulated here, synchronous, no tables"]
    return _table(head, rows)


def _failed_jobs() -> str:
    rows = []
    for name, failures in FAILURES.items():
        shares = [1 - math.exp(-failures * hours / 24) for hours in FAILED_JOBS]
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    rows.append(["measured by Li et al. 2014", *(f"{100 * share:.1f} %" for share in FAILED_JOBS.values())])
    return _table(["failures per 1,000 machine-days", *(f"{hours:,} machine-hours" for hours in FAILED_JOBS)], rows)


def _slowest(measured: SliceMetrics) -> str:
    counts = (2, 10, 100, WORKERS)
    times = [f"{slowest(measured.spread, count):.2f}" for count in counts]
    return _table(["workers in step", *(f"{count:,}" for count in counts)], [["slowest / mean", *times]])


def _intervals(plans: Sequence[Plan]) -> str:
    rows = []
    for (name, failures), plan in itertools.product(FAILURES.items(), plans):
        restarts = plan.together * failures
        minutes = f"{plan.interval(failures) / 60:.1f}"
        rows.append([name, plan.label, f"{restarts:.2f}", minutes, f"{plan.every_steps(failures):,}"])
    head = ["failures per 1,000 machine-days", "strategy", "restarts of all, per day", "best interval, minutes"]
    return _table([*head, "as `checkpoint.every_steps`"], rows)


def _days(plans: Sequence[Plan]) -> str:
    rows = []
    for plan in plans:
        random = np.random.default_rng(_SEED)
        days = [day(plan, FAILURES[USUAL], random) for _ in range(_DAYS)]
        means = [statistics.fmean(getattr(each, field.name) for each in days) for field in fields(Shares)]
        worst = float(np.quantile([each.useful for each in days], 0.05))
        rows.append([plan.label, *(_percent(mean) for mean in means), _percent(worst)])
    head = ["strategy", *(field.name for field in fields(Shares)), "useful, on the worst day of twenty"]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


def _power(model: Dlrm) -> str:
    return f"10^{math.log10(model.rows):.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _seconds(size: float, gbits: float) -> float:
    return size * 8 / (gbits * 1e9)


def _measure(rounds: int) -> tuple[Measurements, Facts]:
    """Runs all that is measured."""
    from benchmarks.training import Bench, Tasks

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        saved, steps = scratch / "checkpoint", scratch / "steps"
        steps.mkdir()
        spreads: list[float] = []
        tasks: list[Tasks] = []
        cluster = {"kind": "parameter_server", "workers": 2, "ps": 2}
        bench = Bench(Path("data"), scratch, rounds, BATCH)
        measure.run(
            [sys.executable, "-m", "benchmarks.training_program", "examples", f"{scratch}/examples"], _log(scratch)
        )

        def save(_number: int) -> Measurement:
            shutil.rmtree(saved, ignore_errors=True)
            saved.mkdir()
            return measure.run(_side("save", saved), _log(scratch), SMALL)

        def step(_number: int) -> Measurement:
            taken = measure.run(_side("steps", steps, _STEPS), _log(scratch), _STEPS * BATCH)
            spreads.append(float(np.log(json.loads((steps / STEPS_FILE).read_text())).std()))
            return taken

        sides: dict[str, Callable[[int], Measurement]] = {
            "save": save,
            "restore": lambda _: measure.run(_side("restore", saved), _log(scratch), SMALL),
            "steps of one process": step,
            "parameter_server, 2 workers, 2 ps": bench.cluster_side(
                {"batch_size": BATCH, "strategy": cluster}, BATCH * _CLUSTER_STEPS, tasks
            ),
        }
        measured = measure.in_turns(sides, rounds)
    size = _STATES * _FLOAT * SMALL * WIDTH / 1e6
    wall = {name: measure.figures(runs, "work.wall") for name, runs in measured.items()}
    figures = {
        "write": [size / seconds for seconds in wall["save"]],
        "read": [size / seconds for seconds in wall["restore"]],
        "step": [seconds / _STEPS * 1e3 for seconds in measure.figures(measured["steps of one process"], "work.cpu")],
        "spread": spreads,
    }
    for field, kind in {"worker": "worker", "server": "ps", "chief": "chief"}.items():
        figures[field] = [_milliseconds(each.by_name, kind) for each in tasks]
    return measured, {_FACTS[field]: Spread.of(values) for field, values in figures.items()}


def _milliseconds(tasks: Mapping[str, Mapping[str, float]], kind: str) -> float:
    taken = (task["user"] + task["system"] for name, task in tasks.items() if name.startswith(kind))
    return sum(taken) / _CLUSTER_STEPS * 1e3


def _side(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.scale_program", *map(str, arguments)]


def _log(scratch: Path) -> Path:
    return scratch / "side.log"


def main(arguments: Sequence[str]) -> None:
    """Prints the tables, or measures what they stand on and writes it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", choices=["tables", "measure"], nargs="?", default="tables")
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="measure: how often each side is run")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="where the record is")
    options = parser.parse_args(arguments)
    if options.benchmark == "tables":
        print("\n".join(tables(SliceMetrics.of(options.results / f"{_RECORD}_py310.json"))), end="")
        return
    # What our nodes find in theirs, before TensorFlow is imported; the sides inherit it.
    os.environ.update(ENVIRONMENT)
    measured, facts = _measure(options.rounds)
    command = f"python -m benchmarks.scale {shlex.join(arguments)}"
    print(measure.record(_RECORD, command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
