"""Calculate and simulate the training with a thousand workers from measurements on one machine.

python -m benchmarks.scale [measure [--rounds 5]]

Without `measure`, print the tables of docs/explanation/measurements/scale.md from the record in results/. With
`measure`, make this record: how fast a checkpoint is written and read, how long the steps of a large DLRM take and how
much this time varies, and how it is divided between workers, parameter servers and chief (scale_program.py, and a
cluster of training_program.py). Quantities that cannot be measured on one machine are assumed, and listed below with
their sources.

A worker is one core of the measured machine. A worker with more cores or a GPU takes less time for a step, and so needs
proportionally faster networks and more servers.
"""

from __future__ import annotations

import argparse
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
from dataclasses import fields
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements, Spread
from benchmarks.scale_model import (
    BATCH,
    FACTS,
    FLOAT,
    LARGE,
    SEED,
    SMALL,
    STATES,
    WIDTH,
    WORKERS,
    Dlrm,
    Plan,
    Shares,
    SliceMetrics,
    beside_servers,
    busiest,
    day,
    in_step,
    queue,
    rates_beside_servers,
    rates_in_step,
    rows_label,
    servers,
    slowest,
    transfer_seconds,
)
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

GBITS = (10, 25, 100)
FAILURES = {
    "1, an optimistic round number": 1e-3,
    # 419 unexpected interruptions in 54 days on 16,384 GPUs, 8 in a machine: Llama Team 2024, The Llama 3 Herd of
    # Models, section 3.3.4.
    "3.8, Llama 3": 419 / 54 / (16_384 / 8),
    # Over 100 hosts replaced in two months on 992 GPUs, 8 in a machine: Zhang et al. 2022, OPT: Open Pre-trained
    # Transformer Language Models, section 2.5.
    "13, OPT-175B": 100 / 60 / (992 / 8),
}
"""Expected failures of a machine per day. The keys name the failures per 1,000 machine-days."""
USUAL = "3.8, Llama 3"
COUNTS = (8, 32, 128, 256, 512, WORKERS)
"""Numbers of workers for which the steps per second are calculated and simulated."""
FAILED_JOBS = {100: 0.078, 1_000: 0.137, 10_000: 0.247}
"""Machine-hours of a job → share of such jobs that failed during three months in a data center. Source: Li et al. 2014,
Scaling Distributed Machine Learning with the Parameter Server, table 1."""
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
"""Published measurements: source, what was measured, number of workers and figure. If the figure is an efficiency of
synchronous steps, the last item has the two numbers of workers whose rates per worker are compared."""

STEPS_FILE = "steps.json"
_DAYS = 1_000
_STEPS, _CLUSTER_STEPS = 60, 120
_RECORD = "scale"


def make_tables(measured: SliceMetrics) -> list[str]:
    """Return the tables of docs/explanation/measurements/scale.md, as Markdown."""
    plans = [
        in_step(Dlrm(SMALL), measured),
        beside_servers(Dlrm(SMALL), measured),
        beside_servers(Dlrm(LARGE), measured),
    ]
    return [
        _make_traffic_table(),
        _make_servers_table(measured),
        _make_rates_table(measured),
        _make_published_table(measured),
        _make_slowest_table(measured),
        _make_intervals_table(plans),
        _make_failed_jobs_table(),
        _make_days_table(plans),
    ]


def _make_traffic_table() -> str:
    small, large = Dlrm(SMALL), Dlrm(LARGE)
    moved = {
        f"parameter_server, {rows_label(small)} rows, any number": small.beside_servers(),
        f"parameter_server, {rows_label(large)} rows, any number": large.beside_servers(),
    }
    moved |= {f"multi_worker, {workers:,} workers": small.in_step(workers) for workers in (2, 32, WORKERS)}
    rows = (
        [name, f"{size / 1e6:,.1f}", *(f"{transfer_seconds(size, speed) * 1e3:,.0f}" for speed in GBITS)]
        for name, size in moved.items()
    )
    return _format_table(["a worker's step", "MB", *(f"ms at {speed} Gbit/s" for speed in GBITS)], rows)


def _make_servers_table(measured: SliceMetrics) -> str:
    rows = []
    for model in (Dlrm(SMALL), Dlrm(LARGE)):
        needed = servers(model, measured)
        count = max(needed.values())
        speed = f"{busiest(model, measured, count):.0f}"
        seconds = (f"{model.checkpoint / writers / measured.write / 1e6:,.2f}" for writers in (1, count))
        chief = f"{WORKERS * measured.chief / measured.worker:.1f}"
        size = f"{model.checkpoint / 1e9:,.1f}"
        rows.append([rows_label(model), size, *map(str, needed.values()), speed, chief, *seconds])
    head = ["rows", "GB with Adam's moments", *(f"ps for {limit}" for limit in ("memory", "network", "cores"))]
    return _format_table(
        [*head, "Gbit/s of the busiest", "cores of the chief", "s to save, one writer", "s to save, all ps"], rows
    )


def _make_rates_table(measured: SliceMetrics) -> str:
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
                f"{rate:,.1f}" for rate in (rates.bounds[rates.limit], rates.simulated, rates.straggling)
            )
            efficiency = f"{100 * rates.simulated * measured.step / 1e3 / workers:.0f} %"
            cells = [f"{workers:,}", name, f"{size / 1e6:,.1f}", calculated, rates.limit, simulated, efficiency]
            rows.append([*cells, straggling, fewer])
    head = ["workers", "strategy", "MB of a worker's step", "steps/s, calculated", "limit", "steps/s, simulated"]
    return _format_table([*head, "efficiency", "with stragglers", "with half the ps"], rows)


def _make_published_table(measured: SliceMetrics) -> str:
    def per_worker(workers: int) -> float:
        size = 2 * (workers - 1) / workers * Dlrm(SMALL).dense
        return rates_in_step(size, measured, workers).simulated / workers

    rows = []
    for *cells, compared in PUBLISHED:
        here = f"{100 * per_worker(compared[1]) / per_worker(compared[0]):.0f} %" if compared else ""
        rows.append([*cells, here])
    head = ["source", "what was measured", "workers", "figure", "simulated here, synchronous, no tables"]
    return _format_table(head, rows)


def _make_failed_jobs_table() -> str:
    rows = []
    for name, failures in FAILURES.items():
        shares = [1 - math.exp(-failures * hours / 24) for hours in FAILED_JOBS]
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    rows.append(["measured by Li et al. 2014", *(f"{100 * share:.1f} %" for share in FAILED_JOBS.values())])
    return _format_table(
        ["failures per 1,000 machine-days", *(f"{hours:,} machine-hours" for hours in FAILED_JOBS)], rows
    )


def _make_slowest_table(measured: SliceMetrics) -> str:
    counts = (2, 10, 100, WORKERS)
    times = [f"{slowest(measured.spread, count):.2f}" for count in counts]
    return _format_table(["workers in step", *(f"{count:,}" for count in counts)], [["slowest / mean", *times]])


def _make_intervals_table(plans: Sequence[Plan]) -> str:
    rows = []
    for (name, failures), plan in itertools.product(FAILURES.items(), plans):
        restarts = plan.together * failures
        minutes = f"{plan.interval(failures) / 60:.1f}"
        rows.append([name, plan.label, f"{restarts:.2f}", minutes, f"{plan.every_steps(failures):,}"])
    head = ["failures per 1,000 machine-days", "strategy", "restarts of all, per day", "best interval, minutes"]
    return _format_table([*head, "as `checkpoint.every_steps`"], rows)


def _make_days_table(plans: Sequence[Plan]) -> str:
    rows = []
    for plan in plans:
        random = np.random.default_rng(SEED)
        days = [day(plan, FAILURES[USUAL], random) for _ in range(_DAYS)]
        means = [statistics.fmean(getattr(day_, field.name) for day_ in days) for field in fields(Shares)]
        worst = float(np.quantile([day_.useful for day_ in days], 0.05))
        rows.append([plan.label, *(_format_percent(mean) for mean in means), _format_percent(worst)])
    head = ["strategy", *(field.name for field in fields(Shares)), "useful, on the worst day of twenty"]
    return _format_table(head, rows)


def _format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


def _format_percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _measure(rounds: int) -> tuple[Measurements, Facts]:
    """Run all measurements."""
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
            measurement = measure.run(_side("steps", steps, _STEPS), _log(scratch), _STEPS * BATCH)
            spreads.append(float(np.log(json.loads((steps / STEPS_FILE).read_text())).std()))
            return measurement

        sides: dict[str, Callable[[int], Measurement]] = {
            "save": save,
            "restore": lambda _: measure.run(_side("restore", saved), _log(scratch), SMALL),
            "steps of one process": step,
            "parameter_server, 2 workers, 2 ps": bench.cluster_side(
                {"batch_size": BATCH, "strategy": cluster}, BATCH * _CLUSTER_STEPS, tasks
            ),
        }
        measured = measure.in_turns(sides, rounds)
    size = STATES * FLOAT * SMALL * WIDTH / 1e6
    wall = {name: measure.figures(runs, "work.wall") for name, runs in measured.items()}
    figures = {
        "write": [size / seconds for seconds in wall["save"]],
        "read": [size / seconds for seconds in wall["restore"]],
        "step": [seconds / _STEPS * 1e3 for seconds in measure.figures(measured["steps of one process"], "work.cpu")],
        "spread": spreads,
    }
    for field, kind in {"worker": "worker", "server": "ps", "chief": "chief"}.items():
        figures[field] = [_milliseconds(round_.by_name, kind) for round_ in tasks]
    return measured, {FACTS[field]: Spread.of(values) for field, values in figures.items()}


def _milliseconds(tasks: Mapping[str, Mapping[str, float]], kind: str) -> float:
    seconds = (task["user"] + task["system"] for name, task in tasks.items() if name.startswith(kind))
    return sum(seconds) / _CLUSTER_STEPS * 1e3


def _side(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.scale_program", *map(str, arguments)]


def _log(scratch: Path) -> Path:
    return scratch / "side.log"


def main(arguments: Sequence[str]) -> None:
    """Print the tables, or run the measurements and write the record to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark", choices=["tables", "measure"], nargs="?", default="tables")
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="measure: runs of each side")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    if options.benchmark == "tables":
        print("\n".join(make_tables(SliceMetrics.load(options.results / f"{_RECORD}_py310.json"))), end="")
        return
    # Set before TensorFlow is imported, as in our nodes; the sides inherit it.
    os.environ.update(ENVIRONMENT)
    measured, facts = _measure(options.rounds)
    command = f"python -m benchmarks.scale {shlex.join(arguments)}"
    print(measure.record(_RECORD, command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
