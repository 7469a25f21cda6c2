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
"""Network speed of every machine in Gbit/s, for tables with a single speed."""
SERVER_GB, SERVER_CORES = 64, 16
"""Memory and cores of a parameter server."""
LOAD = 0.5
"""Maximum average utilization of a server's network and cores."""
RESTART = 300.0
"""Seconds from a failure until a replacement machine has joined, without reading the checkpoint."""
SLOW = 0.01
"""Share of stragglers, which work at half the speed."""
CALL_MEASURED, CALL = 10, 100
"""Values of `training.steps_per_execution` in the measurement of the chief, and in the calculation."""
FLOAT, _ID = 4, 8
STATES = 3
"""Values stored per weight: the weight and Adam's two moments."""
_DAY = 86_400.0
_DRAWS = 200
_QUEUE_STEPS, _QUEUE_WARM_UP = 30, 2
SEED = 1


@dataclass(frozen=True)
class SliceMetrics:
    """Medians that were measured on one machine.

    Attributes:
      write: Speed of writing a checkpoint to the disk, in MB/s.
      read: Speed of reading a checkpoint from the disk, in MB/s.
      step: CPU time of a step in one process, in ms.
      spread: Standard deviation of the logarithms of the steps' CPU times.
      worker: CPU time of the worker for a step with parameter servers, in ms.
      server: CPU time of all servers together for such a step, in ms.
      chief: CPU time of the chief for such a step, in ms.
    """

    write: float
    read: float
    step: float
    spread: float
    worker: float
    server: float
    chief: float

    @classmethod
    def load(cls, record: Path) -> SliceMetrics:
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
    """The measured DLRM with `rows` rows in its tables together."""

    rows: int

    @property
    def dense(self) -> int:
        """Bytes of the weights of both networks, below and above the dot products."""
        return sum(self.kernels)

    @property
    def kernels(self) -> list[int]:
        """Bytes of the layers, each with kernel and bias."""
        products = (TABLES + 1) * TABLES // 2
        networks = ((NUMBERS, *HIDDEN, WIDTH), (WIDTH + products, *HIDDEN, 1))
        pairs = itertools.chain.from_iterable(itertools.pairwise(network) for network in networks)
        return [FLOAT * (below + 1) * above for below, above in pairs]

    @property
    def checkpoint(self) -> int:
        """Bytes of all weights with Adam's moments, which is also the size of a checkpoint."""
        return STATES * (FLOAT * self.rows * WIDTH + self.dense)

    @property
    def unique(self) -> float:
        """Expected number of distinct rows in a batch if all ids are equally frequent, which is the worst case."""
        table_rows = self.rows / TABLES
        return -TABLES * table_rows * math.expm1(BATCH * math.log1p(-1 / table_rows))

    def beside_servers(self) -> float:
        """Compute the bytes of a worker's step: ids sent, rows pulled, unique rows pushed, and the networks both ways.

        TensorFlow looks up a row as often as it occurs in the batch. Gradients are summed by row before the push.
        """
        row = FLOAT * WIDTH + _ID
        return BATCH * TABLES * row + self.unique * row + 2 * self.dense

    def in_step(self, workers: int) -> float:
        """Compute the bytes that a worker receives in a synchronous step.

        The gradients of the networks are exchanged by a ring all-reduce. The gradients of the tables are exchanged by
        an all-gather, and summed by row only afterwards.
        """
        gathered = (workers - 1) * BATCH * TABLES * (FLOAT * WIDTH + _ID)
        return 2 * (workers - 1) / workers * self.dense + gathered


@dataclass(frozen=True)
class Plan:
    """Durations and restarts of a thousand workers under a strategy.

    Attributes:
      label: Strategy and number of rows.
      step: Time of a worker's step without waiting, in seconds.
      network: Time of a step on the network, in seconds.
      slowest: Time of the slowest worker that the others wait for, relative to the mean time of a step.
      updates: Optimizer steps, as the config counts them, during a step of one worker.
      save: Time to save a checkpoint, in seconds.
      restart: Time from a failure until training continues, in seconds.
      together: Number of tasks that are all restarted if any of them fails.
      alone: Number of tasks that are restarted alone.
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
        """Compute the optimum time between two checkpoints, in seconds.

        Source: Young 1974, A First Order Approximation to the Optimum Checkpoint Interval. Daly 2006 refines it for
        checkpoints that take long compared with the time between failures.
        """
        return math.sqrt(2 * self.save * _DAY / (self.together * failures))

    def every_steps(self, failures: float) -> int:
        """Convert the optimum interval into `checkpoint.every_steps`, rounded to two digits."""
        steps = self.interval(failures) / (self.step * self.slowest + self.network) * self.updates
        return int(float(f"{steps:.1e}"))


@dataclass(frozen=True)
class Shares:
    """Shares of a day's time of all workers. The shares add up to 1.

    Attributes:
      saving: Share of saving checkpoints.
      restarting: Share of the time from failures to new starts.
      repeated: Share of repeated steps, which were lost because no checkpoint contained them.
      waiting: Share of waiting for the network and the slowest worker.
      useful: Share of useful work.
    """

    saving: float
    restarting: float
    repeated: float
    waiting: float
    useful: float


def slowest(spread: float, workers: int, draws: int = 2_000) -> float:
    """Compute the expected maximum of `workers` log-normal times, relative to their mean."""
    random = np.random.default_rng(SEED)
    longest = [random.standard_normal(workers).max() for _ in range(draws)]
    return float(np.exp(spread * np.array(longest)).mean() / math.exp(spread**2 / 2))


def servers(model: Dlrm, measured: SliceMetrics, workers: int = WORKERS) -> dict[str, int]:
    """Compute the number of parameter servers that memory, network and cores require."""
    seconds = measured.worker / 1e3
    bytes_per_second = workers * model.beside_servers() / seconds
    cores = workers * measured.server / measured.worker
    return {
        "memory": math.ceil(model.checkpoint / (SERVER_GB * 1e9)),
        "network": math.ceil(bytes_per_second / (LOAD * NETWORK / 8 * 1e9)),
        "cores": math.ceil(cores / (LOAD * SERVER_CORES)),
    }


def busiest(model: Dlrm, measured: SliceMetrics, count: int) -> float:
    """Compute the traffic of the server with the largest kernel, in Gbit/s.

    Tables are divided into shards, but each kernel is on one server.
    """
    largest = _kernels(model, min(count, len(model.kernels))).max() + _shards(model, count)
    return WORKERS * float(largest) / (measured.worker / 1e3) * 8 / 1e9


def by_server(model: Dlrm, count: int) -> Floats:
    """Compute the bytes of a worker's step at each server, sorted in descending order, shape [count]."""
    return np.sort(_kernels(model, count) + _shards(model, count))[::-1]


def _kernels(model: Dlrm, count: int) -> Floats:
    """Assign kernels, the largest first, to the server with the fewest bytes; return the bytes, shape [count]."""
    kernels: Floats = np.zeros(count)
    for size in sorted(model.kernels, reverse=True):
        kernels[kernels.argmin()] += 2 * size
    return kernels


def _shards(model: Dlrm, count: int) -> float:
    """Compute the bytes of the tables' shards at each server."""
    return (model.beside_servers() - 2 * model.dense) / count


@dataclass(frozen=True)
class Rates:
    """Steps per second of all workers together.

    Attributes:
      bounds: Bottleneck → upper bound on the rate.
      simulated: Simulated rate with the measured spread of the steps.
      straggling: Simulated rate with one worker in a hundred, but at least one, at half the speed.
    """

    bounds: dict[str, float]
    simulated: float
    straggling: float

    @property
    def limit(self) -> str:
        """The bottleneck with the lowest bound."""
        return min(self.bounds, key=self.bounds.__getitem__)


def rates_beside_servers(model: Dlrm, measured: SliceMetrics, workers: int, count: int) -> Rates:
    """Compute and simulate the rates of workers with `count` parameter servers.

    The bounds follow operational analysis: all workers run without waiting, or the busiest station is always busy.

    Source: Denning & Buzen 1978, The Operational Analysis of Queueing Network Models.
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
    """Compute the seconds of a worker's step at each server, where network and cores work in parallel."""
    network = by_server(model, count) * 8 / (NETWORK * 1e9)
    return np.maximum(network, measured.server / 1e3 / count / SERVER_CORES)


def queue(model: Dlrm, measured: SliceMetrics, workers: int, count: int, slow: float) -> float:
    """Simulate workers that pull from all servers, compute and push to all servers; return the steps per second.

    A server handles messages one at a time in the order of arrival. Half of a step's bytes are pulled and half are
    pushed. The time of the computation is log-normal with the measured spread.

    Args:
      model: Model, which determines the bytes of a step.
      measured: Measured times.
      workers: Number of workers.
      count: Number of servers.
      slow: Share of workers that compute at half the speed.
    """
    random = np.random.default_rng(SEED)
    service = _services(model, measured, count) / 2
    own_transfer = transfer_seconds(model.beside_servers(), NETWORK) / 2
    speed = np.ones(workers)
    speed[: math.ceil(slow * workers)] = 2.0
    compute = measured.worker / 1e3 * speed * _log_normal(random, measured.spread, (_QUEUE_STEPS, workers))
    free = np.zeros(count)
    # Entries are (time of arrival, worker, messages so far). At the start, the workers are spread over a step.
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
            # Measure from the first worker's third step, when the queues have their usual length, to its last step.
            if step == _QUEUE_WARM_UP and not begin:
                begin = len(ends)
            if step == _QUEUE_STEPS - 1:
                return (len(ends) - begin) / (done - ends[begin - 1])
        heapq.heappush(arrivals, (done if is_push else done + float(compute[step, worker]), worker, messages + 1))


def rates_in_step(size: float, measured: SliceMetrics, workers: int) -> Rates:
    """Compute and simulate the rates of synchronous workers that each receive `size` bytes in a step.

    A step of all workers counts as one step per worker. The bound uses Blom's approximation of the largest of several
    normal values.

    Source: Blom 1958, Statistical Estimates and Transformed Beta-Variables.
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
    """Draw log-normal values with mean 1."""
    values: Floats = random.lognormal(-(spread**2) / 2, spread, shape)
    return values


def beside_servers(model: Dlrm, measured: SliceMetrics) -> Plan:
    """Plan a thousand workers with as many servers as they need; each server writes and reads its shards."""
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
    """Plan a thousand synchronous workers, each of which writes and reads a whole checkpoint."""
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
    """Simulate a day of a thousand workers with exponentially distributed times between failures.

    Args:
      plan: Plan of the workers.
      failures: Expected number of failures of a task per day.
      random: Source of the failures.
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
    """Return the number of rows in a model's tables as a power of ten."""
    return f"10^{math.log10(model.rows):.0f}"


def transfer_seconds(size: float, gbits: float) -> float:
    """Compute the seconds to transfer `size` bytes over a network of `gbits` Gbit/s."""
    return size * 8 / (gbits * 1e9)
