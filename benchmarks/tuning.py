"""Measure the gain of parallel trials: the Tuner with one trial at a time, and with one trial per core.

python -m benchmarks.tuning [--trials 6] [--rounds 3]

The trials try learning rates of a network and depths of trees on the taxi trips. Both sides of a round run the same
trials.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure

_TUNE = (
    "{{kind: {{choice: [tabm, gbt]}}, learning_rate: {{log: [0.0005, 0.01]}}, depth: {{int: [3, 6]}}, "
    "trials: {trials}, steps: 300, seed: {seed}, parallel: {parallel}}}"
)


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # Run the other nodes first, so that the rounds find them in the cache.
        measure.run_taxi(folder, "--to", "Transform")
        sides = {f"{count} at a time": _side(folder, options.trials, count) for count in (1, cores)}
        measured = measure.in_turns(sides, options.rounds)
    alone, together = measured.values()
    facts: measure.Facts = {
        "trials": options.trials,
        f"the Tuner's time with {cores} at a time / with 1": measure.ratio(together, alone),
    }
    command = f"python -m benchmarks.tuning --trials {options.trials} --rounds {options.rounds}"
    print(measure.record("tuning", command, measured, facts))


def _side(folder: Path, trials: int, parallel: int) -> Callable[[int], measure.Measurement]:
    def run(number: int) -> measure.Measurement:
        tune = _TUNE.format(trials=trials, seed=number + 1, parallel=parallel)
        log = measure.run_taxi(folder, "--to", "Tuner", "--json", "--set", f"tune={tune}")
        node = json.loads(log.read_text().splitlines()[-1])["nodes"]["Tuner"]
        return measure.Measurement(node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])

    return run


if __name__ == "__main__":
    main()
