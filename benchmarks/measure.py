"""Measure commands in turns: wall time, CPU-seconds and peak memory of the process tree, with medians and ratios.

A benchmark defines sides, `in_turns` runs them round by round, `ratio` compares two sides round by round, and `record`
writes a JSON record and a Markdown table. A side is a command, and `run` measures the whole command with its imports. A
side in Python may do its work in `report`, which measures only the work, from inside.

Exact figures are the wall time, the CPU-seconds of processes that were waited for, and the peak memory of the side's
main process, which the kernel records. The memory of a process tree, and the CPU-seconds of descendants that were not
waited for, are sampled. Linux only, as the rest of the project.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil

ROUNDS = 5
"""Default number of rounds. With five rounds, two outliers do not move the median out of the other three."""
RESULTS = Path(__file__).parent / "results"
_SAMPLE_SECONDS = 0.2
_LIBRARIES = ("tfx", "tensorflow", "apache-beam", "pyarrow")


@dataclass(frozen=True)
class Work:
    """The work of a program, without start and imports.

    Attributes:
      rows: Number of rows that the program has processed.
      wall: Wall time in seconds.
      cpu: User and system seconds of the side's main process and of the children that it has waited for.
      peak_mb: Peak resident memory of the side's main process, including imports, in MiB.
    """

    rows: int
    wall: float
    cpu: float
    peak_mb: float

    @property
    def cpu_per_row(self) -> float:
        """CPU time per row, in microseconds."""
        return self.cpu / self.rows * 1e6


@dataclass(frozen=True)
class Measurement:
    """A run of a command.

    Attributes:
      wall: Wall time from start to end, in seconds.
      cpu: User and system seconds of the process and its descendants that were waited for or sampled.
      peak_mb: Largest sampled sum of the resident memory of the process tree, in MiB. Shared pages count per process.
      work: Work that the command has reported. If it does not report its work, None.
    """

    wall: float
    cpu: float
    peak_mb: float
    work: Work | None = None


Measurements = Mapping[str, Sequence[Measurement]]
"""Side → measurements of all rounds."""
Facts = dict[str, object]
"""Figures to report. A Spread is written as text in Markdown, and with its fields in JSON."""


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of some figures."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of at least one value."""
        ordered = sorted(values)
        return cls(*(round(value, 4) for value in (statistics.median(ordered), ordered[0], ordered[-1])))

    def format(self, digits: int) -> str:
        """Format the spread with a number of digits after the decimal point."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.greatest:.{digits}f})"

    def __str__(self) -> str:
        return self.format(1 if self.median >= 10 else 3)


class Tree:
    """Samples a process and its descendants.

    Attributes:
      peak: Largest sampled sum of their resident memory, in bytes.
    """

    def __init__(self, process: psutil.Process | psutil.Popen) -> None:
        self._process = process
        self._cpu: dict[tuple[int, float], float] = {}
        self.peak = 0

    @property
    def cpu(self) -> float:
        """CPU-seconds of all sampled processes, each as of its last sample."""
        return sum(self._cpu.values())

    def sample(self) -> None:
        """Sample every living process."""
        resident = 0
        try:
            tree = [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in tree:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    self._cpu[(process.pid, process.create_time())] = times.user + times.system
                    resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak = max(self.peak, resident)


def run(command: Sequence[str], log: Path, rows: int | None = None) -> Measurement:
    """Run a command to its end and measure it. Other children of this process must not end during the run.

    Args:
      command: The program and its arguments.
      log: File for the output.
      rows: Number of rows that the command processes. If None, the command does not report its work (see `report`).

    Raises:
      RuntimeError: The command failed, or did not report its work. The message contains the last lines of the log.
    """
    with log.open("wb") as output:
        start, before = time.perf_counter(), _cpu(resource.RUSAGE_CHILDREN)
        process = psutil.Popen(list(command), stdout=output, stderr=subprocess.STDOUT)
        tree = Tree(process)
        while True:
            tree.sample()
            try:
                process.wait(_SAMPLE_SECONDS)
                break
            except psutil.TimeoutExpired:
                continue
        wall = time.perf_counter() - start
    if process.returncode:
        raise _make_error(command, f"ended with {process.returncode}", log)
    # The kernel's count is exact, but does not include descendants that were not waited for.
    cpu = max(_cpu(resource.RUSAGE_CHILDREN) - before, tree.cpu)
    measured = Measurement(round(wall, 2), round(cpu, 2), round(tree.peak / 2**20, 1))
    if rows is None:
        return measured
    work = _read_report(log)
    if work is None:
        raise _make_error(command, "printed no measurement", log)
    return replace(measured, work=Work(rows=rows, **work))


def report(work: Callable[[], object]) -> None:
    """Do the work of a side, and print a line for `run` with its time and memory."""
    start, before = time.perf_counter(), _own_cpu()
    work()
    wall, cpu = time.perf_counter() - start, _own_cpu() - before
    print(json.dumps({"wall": round(wall, 5), "cpu": round(cpu, 5), "peak_mb": round(_own_peak() / 2**20, 1)}))


def in_turns(
    sides: Mapping[str, Callable[[int], Measurement]], rounds: int = ROUNDS, warm_up: int = 0
) -> dict[str, list[Measurement]]:
    """Run all sides in each round, so that other load on the machine affects all of them.

    Args:
      sides: Name of a side → function that runs it. The argument is the number of the round, from 0.
      rounds: Number of rounds.
      warm_up: Number of additional rounds before, which do not count. Their numbers are negative.

    Returns:
      Side → measurements of the rounds that count.
    """
    measured: dict[str, list[Measurement]] = {name: [] for name in sides}
    for number in range(-warm_up, rounds):
        for name, side in sides.items():
            measurement = side(number)
            counted = f"round {number + 1}" if number >= 0 else "warm-up"
            print(f"{counted}: {name}: {measurement}", file=sys.stderr, flush=True)
            if number >= 0:
                measured[name].append(measurement)
    return measured


def figures(side: Sequence[Measurement], key: str) -> list[float]:
    """Return a figure of all rounds.

    Args:
      side: Measurements of the side.
      key: Name of the figure: wall, cpu, peak_mb, work.wall, work.cpu, work.cpu_per_row or work.peak_mb.
    """
    figure = attrgetter(key)
    return [float(figure(measurement)) for measurement in side]


def ratio(over: Sequence[Measurement], under: Sequence[Measurement], key: str = "wall") -> Spread:
    """Return the spread of the ratios of two sides, round by round, which load during a whole round does not change."""
    pairs = zip(figures(over, key), figures(under, key), strict=True)
    return Spread.of(above / below for above, below in pairs)


def record(name: str, command: str, measured: Measurements, facts: Facts, folder: Path = RESULTS) -> str:
    """Write NAME_pyXY.json and NAME_pyXY.md, where XY is the Python version; return the Markdown.

    Args:
      name: Name of the benchmark.
      command: Command that repeats the benchmark.
      measured: Side → measurements of all rounds.
      facts: Figures to report.
      folder: Folder of the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}_py{sys.version_info.major}{sys.version_info.minor}"
    machine = _machine()
    raw = {side: [asdict(measurement) for measurement in runs] for side, runs in measured.items()}
    content = {"command": command, "machine": machine, "facts": dict(facts), "runs": raw}
    file.with_suffix(".json").write_text(json.dumps(content, indent=1, default=asdict) + "\n")
    text = _markdown(command, machine, measured, facts)
    file.with_suffix(".md").write_text(text)
    return text


def _markdown(command: str, machine: Mapping[str, Any], measured: Measurements, facts: Facts) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items())
    rounds = max(len(runs) for runs in measured.values())
    columns = [("wall s", "wall", 2), ("CPU s", "cpu", 2), ("peak MiB", "peak_mb", 0)]
    work = [("work: wall s", "work.wall", 2), ("work: CPU s", "work.cpu", 2)]
    work += [("work: CPU µs per row", "work.cpu_per_row", 1), ("own peak MiB", "work.peak_mb", 0)]
    if any(measurement.work for runs in measured.values() for measurement in runs):
        columns += work
    lines = [
        f"Made by `{command}`; {machine['cores']} cores, {machine['memory_gb']} GB, Python {machine['python']}, "
        f"{versions}; median of {rounds} (least to greatest).",
        "",
        f"| | {' | '.join(title for title, _, _ in columns)} |",
        f"|{'---|' * (len(columns) + 1)}",
    ]
    for side, runs in measured.items():
        cells = (
            ""
            if "." in key and not all(measurement.work for measurement in runs)
            else Spread.of(figures(runs, key)).format(digits)
            for _, key, digits in columns
        )
        lines.append(f"| {side} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {fact}: {value}" for fact, value in facts.items()), ""])


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "memory_gb": psutil.virtual_memory().total >> 30,
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _read_report(log: Path) -> dict[str, float] | None:
    """Return the last line of `report` in a log; other threads and processes may have printed lines around it."""
    for line in reversed(log.read_text(errors="replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.keys() == {"wall", "cpu", "peak_mb"}:
            return record
    return None


def _make_error(command: Sequence[str], why: str, log: Path) -> RuntimeError:
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    return RuntimeError(f"{' '.join(command)} {why}:\n{tail}")


def _own_cpu() -> float:
    return _cpu(resource.RUSAGE_SELF) + _cpu(resource.RUSAGE_CHILDREN)


def _cpu(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _own_peak() -> int:
    """Return the largest resident memory of this process, in bytes.

    getrusage's ru_maxrss is not used, because a child inherits it from its parent (Linux, exec_mmap in fs/exec.c).
    """
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if not match:
        raise RuntimeError("/proc/self/status has no line VmHWM: this needs Linux")
    return int(match[1]) << 10


def run_taxi(folder: Path, *arguments: str) -> Path:
    """Run configs/taxi.yaml into a folder; return the log, whose last line is the result with `--json`."""
    log = folder / "run.log"
    command = [sys.executable, "runner.py", "--local", "--config", "configs/taxi.yaml", "--output", str(folder)]
    run([*command, *arguments], log)
    return log
