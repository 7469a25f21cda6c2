"""The model of a thousand workers: bytes, steps per second and failures, calculated and simulated.

What cannot be measured on one machine is assumed, and stands below with its source. A worker is one core of the
measured machine. One that has more cores, or a GPU, takes a step in less time, and so needs as much more of networks
and servers. scale.py prints its tables.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import statistics
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

WORKERS = 1_000
BATCH = 8_192
TABLES, WIDTH, NUMBERS, HIDDEN = 8, 32, 13, (512, 256, 128)
SMALL, LARGE = 1_000_000, 1_000_000_000
"""Rows of all tables together: of the model that is measured, and of one for which parameter servers are made."""

NETWORK = 25
"""Gbit/s of every machine, where one figure has to do."""
SERVER_GB, SERVER_CORES = 64, 16
"""Memory and cores of a parameter server."""
LOAD = 0.5
"""How much of a server's network and cores may be in use on average."""
RESTART = 300.0
"""Seconds from a failure until a machine in its place has joined; the reading of the checkpoint comes on top."""
SLOW = 0.01
"""The share of workers at half the speed, where there are stragglers."""
CALL_MEASURED, CALL = 10, 100
"""`training.steps_per_execution` with which the chief was measured, and with which it is calculated."""
FLOAT, _ID = 4, 8
STATES = 3
"""A weight, and Adam's two moments of it."""
_DAY = 86_400.0
_DRAWS = 200
_QUEUE_STEPS, _QUEUE_WARM_UP = 30, 2
SEED = 1


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
        """Read the record that `measure` wrote."""
        facts = json.loads(record.read_text())["facts"]
        return cls(*(facts[FACTS[field.name]]["median"] for field in fields(cls)))


FACTS = {
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
        return [FLOAT * (below + 1) * above for below, above in pairs]

    @property
    def checkpoint(self) -> int:
        """Bytes of the weights and of Adam's moments: what a checkpoint holds, and whoever holds all variables."""
        return STATES * (FLOAT * self.rows * WIDTH + self.dense)

    @property
    def unique(self) -> float:
        """Rows that a batch names, each counted once, if all ids are as frequent as each other: the worst case."""
        table_rows = self.rows / TABLES
        return -TABLES * table_rows * math.expm1(BATCH * math.log1p(-1 / table_rows))

    def beside_servers(self) -> float:
        """Bytes of a worker's step: ids sent and rows pulled, unique rows pushed, the networks both ways.

        TensorFlow looks a row up as often as the batch names it; gradients are summed by row before they are pushed.
        """
        row = FLOAT * WIDTH + _ID
        return BATCH * TABLES * row + self.unique * row + 2 * self.dense

    def in_step(self, workers: int) -> float:
        """Bytes that each of so many workers receives in a step: a ring all-reduce of the networks' gradients, and
        an all-gather of those of the tables, which are summed by row only after it.
        """
        gathered = (workers - 1) * BATCH * TABLES * (FLOAT * WIDTH + _ID)
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
        """Return the same as `checkpoint.every_steps`, to two digits."""
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
    random = np.random.default_rng(SEED)
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
        "workers": workers / (seconds + transfer_seconds(size, NETWORK)),
        "busiest ps": 1 / float(station),
        "chief": CALL / CALL_MEASURED / (measured.chief / 1e3),
    }
    return Rates(bounds, *(queue(model, measured, workers, count, slow) for slow in (0.0, SLOW)))


def _services(model: Dlrm, measured: SliceMetrics, count: int) -> Floats:
    """Seconds that a worker's step takes at each server, whose network and cores work at the same time."""
    network = by_server(model, count) * 8 / (NETWORK * 1e9)
    return np.maximum(network, measured.server / 1e3 / count / SERVER_CORES)


def queue(model: Dlrm, measured: SliceMetrics, workers: int, count: int, slow: float) -> float:
    """Step per second in a simulation: a worker pulls from all servers, compute, and pushe to all.

    A server serves one message after the other in the order of arrival, half of a step's bytes for each pull and each
    push. Computation takes a log-normal time with the measured spread.

    Args:
      model: the bytes.
      measured: the times.
      workers: how many.
      count: servers.
      slow: the share of workers that compute at half the speed.
    """
    random = np.random.default_rng(SEED)
    service = _services(model, measured, count) / 2
    own_transfer = transfer_seconds(model.beside_servers(), NETWORK) / 2
    speed = np.ones(workers)
    speed[: math.ceil(slow * workers)] = 2.0
    compute = measured.worker / 1e3 * speed * _log_normal(random, measured.spread, (_QUEUE_STEPS, workers))
    free = np.zeros(count)
    # (time of arrival, worker, messages so far); at the start, the workers are spread over a step.
    arrivals = [(float(random.uniform(0, duration)), worker, 0) for worker, duration in enumerate(compute[0])]
    heapq.heapify(arrivals)
    ends: list[float] = []
    begin = 0
    while True:
        now, worker, messages = heapq.heappop(arrivals)
        free = np.maximum(free, now) + service
        done = max(float(free.max()), now + own_transfer)
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
    """Synchronou workers that each receive so many bytes in a step; a step of all counts as one of each.

    Calculated with Blom's approximation of the largest of normal values: Blom 1958, Statistical Estimates and
    Transformed Beta-Variables.
    """
    seconds, network = measured.step / 1e3, transfer_seconds(size, NETWORK)
    largest = statistics.NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
    longest = math.exp(measured.spread * largest - measured.spread**2 / 2)
    random = np.random.default_rng(SEED)
    times = _log_normal(random, measured.spread, (_DRAWS, workers))
    slow = times * np.where(np.arange(workers) < math.ceil(SLOW * workers), 2.0, 1.0)
    simulated = (workers / (seconds * durations.max(axis=1).mean() + network) for durations in (times, slow))
    return Rates({"slowest worker and network": workers / (seconds * longest + network)}, *map(float, simulated))


def _log_normal(random: np.random.Generator, spread: float, shape: tuple[int, int]) -> Floats:
    """Log-normal values with mean 1."""
    values: Floats = random.lognormal(-(spread**2) / 2, spread, shape)
    return values


def beside_servers(model: Dlrm, measured: SliceMetrics) -> Plan:
    """Return a thousand workers beside as many servers as they need; each server writes and read its own shards."""
    count = max(servers(model, measured).values())
    return Plan(
        label=f"parameter_server, {rows_label(model)} rows, {count} ps",
        step=measured.worker / 1e3,
        network=transfer_seconds(model.beside_servers(), NETWORK),
        slowest=1.0,
        updates=WORKERS,
        save=model.checkpoint / count / measured.write / 1e6,
        restart=RESTART + model.checkpoint / count / measured.read / 1e6,
        together=count + 1,
        alone=WORKERS,
    )


def in_step(model: Dlrm, measured: SliceMetrics) -> Plan:
    """Return a thousand workers in step; each writes and read all of a checkpoint."""
    return Plan(
        label=f"multi_worker, {rows_label(model)} rows",
        step=measured.step / 1e3,
        network=transfer_seconds(model.in_step(WORKERS), NETWORK),
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
        cycles, remainder = divmod(min(failure, _DAY) - now, interval + plan.save)
        worked += cycles * interval
        saving += cycles * plan.save + max(0.0, remainder - interval)
        now = failure + plan.restart
        if failure < _DAY:
            repeated += min(remainder, interval)
            restarting += min(plan.restart, _DAY - failure)
        else:
            worked += min(remainder, interval)
    lost_alone = random.poisson(plan.alone * failures) * plan.restart / WORKERS
    restarting += lost_alone
    worked -= lost_alone
    useful = worked * plan.step / (plan.step * plan.slowest + plan.network)
    return Shares(*(seconds / _DAY for seconds in (saving, restarting, repeated, worked - useful, useful)))


def rows_label(model: Dlrm) -> str:
    """Return the number of rows of its tables as a power of ten."""
    return f"10^{math.log10(model.rows):.0f}"


def transfer_seconds(size: float, gbits: float) -> float:
    """Seconds for so many bytes over a network of so many Gbit/s."""
    return size * 8 / (gbits * 1e9)
