"""Measures whole commands in turns: wall time, CPU-seconds and peak memory of the process tree; medians and ratios."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_SAMPLE_SECONDS = 0.2
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Measurement:
    """One run of one command.

    Attributes:
      wall: seconds from start to end.
      cpu: user and system seconds of the process and every descendant that was waited for or seen alive.
      peak_mb: the largest sum of the tree's resident memory that a sample saw, in MiB (shared pages count each time).
    """

    wall: float
    cpu: float
    peak_mb: float


def run(command: Sequence[str], log: Path) -> Measurement:
    """Runs a command to its end, with its output in a log.

    Raises:
      RuntimeError: the command failed; the log's last lines are in the message.
    """
    with log.open("wb") as output:
        start = time.monotonic()
        process = psutil.Popen(list(command), stdout=output, stderr=subprocess.STDOUT)
        cpu: dict[tuple[int, float], float] = {}
        peak = 0.0
        while True:
            peak = max(peak, _sample(process, cpu))
            try:
                process.wait(_SAMPLE_SECONDS)
                break
            except psutil.TimeoutExpired:
                continue
        wall = time.monotonic() - start
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    return Measurement(round(wall, 2), round(sum(cpu.values()), 2), round(peak / 2**20, 1))


def _sample(process: psutil.Popen, cpu: dict[tuple[int, float], float]) -> float:
    """Notes the CPU-seconds of every living process of the tree; returns their resident bytes."""
    resident = 0.0
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for one in tree:
        try:
            with one.oneshot():
                times = one.cpu_times()
                cpu[(one.pid, one.create_time())] = times.user + times.system
                resident += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return resident


def in_turns(sides: Mapping[str, Callable[[int], Measurement]], rounds: int) -> dict[str, list[Measurement]]:
    """Runs the sides one after the other, round by round, so that a noisy neighbour meets both."""
    measured: dict[str, list[Measurement]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            measured[name].append(side(number))
            print(f"round {number + 1}: {name}: {measured[name][-1]}", file=sys.stderr, flush=True)
    return measured


def record(name: str, command: str, measured: Mapping[str, Sequence[Measurement]], facts: Mapping[str, object]) -> str:
    """Writes results/NAME.json and results/NAME.md; returns the Markdown."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "memory_gb": psutil.virtual_memory().total >> 30,
    }
    raw = {side: [asdict(one) for one in runs] for side, runs in measured.items()}
    content = {"command": command, "machine": machine, "facts": dict(facts), "runs": raw}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    rows = [f"Made by `{command}`; {machine['cores']} cores, Python {machine['python']}; median (min to max).", ""]
    rows += ["| | wall s | CPU s | peak MiB |", "|---|---|---|---|"]
    for side, runs in measured.items():
        figures = (_spread([getattr(one, key) for one in runs]) for key in ("wall", "cpu", "peak_mb"))
        rows.append(f"| {side} | {' | '.join(figures)} |")
    rows += ["", *(f"- {fact}: {value}" for fact, value in facts.items()), ""]
    text = "\n".join(rows)
    (RESULTS / f"{name}.md").write_text(text)
    return text


def ratio(over: Sequence[Measurement], under: Sequence[Measurement], key: str = "wall") -> float:
    """The ratio of two sides' medians."""
    above, below = (statistics.median(getattr(one, key) for one in side) for side in (over, under))
    return round(float(above / below), 3)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
