"""Measure successive halving: the Tuner with and without `tune.halving`, on the same trials.

python -m benchmarks.halving [--trials 12] [--steps 6000] [--rounds 2]

The trials try learning rates, hidden layers and dropout of a network on the taxi trips. Both sides of a round draw the
same values. The losses are those of the best trial after all steps, on the validation part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure

_TUNE = (
    "{{kind: {{choice: [mlp, dcn_v2, tabm]}}, learning_rate: {{log: [0.0001, 0.1]}}, "
    "hidden: {{choice: [[32], [64, 32], [128, 64]]}}, dropout: {{linear: [0, 0.5]}}, "
    "trials: {trials}, steps: {steps}, seed: {seed}{halving}}}"
)


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    losses: dict[str, list[float]] = {"all steps": [], "halving": []}
    steps: dict[str, list[float]] = {name: [] for name in losses}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # Run the other nodes first, so that the rounds find them in the cache.
        measure.run_taxi(folder, "--to", "Transform")
        sides = {
            name: _side(folder, options.trials, options.steps, halving, losses[name], steps[name])
            for name, halving in (("all steps", ""), ("halving", ", halving: {}"))
        }
        measured = measure.in_turns(sides, options.rounds)
    halved, whole = measured["halving"], measured["all steps"]
    facts: measure.Facts = {
        "trials": options.trials,
        "CPU-seconds of the Tuner with halving / without": measure.ratio(halved, whole, "cpu"),
        "time with halving / without": measure.ratio(halved, whole),
        **{f"steps of all trials, {name}": measure.Spread.of(counts).format(0) for name, counts in steps.items()},
        **{f"loss of the best trial, {name}": measure.Spread.of(values).format(4) for name, values in losses.items()},
        "loss with halving minus without": measure.Spread.of(
            stopped - trained for trained, stopped in zip(*losses.values(), strict=True)
        ).format(4),
    }
    command = (
        f"python -m benchmarks.halving --trials {options.trials} --steps {options.steps} --rounds {options.rounds}"
    )
    print(measure.record("halving", command, measured, facts))


def _side(
    folder: Path, trials: int, steps: int, halving: str, losses: list[float], counts: list[float]
) -> Callable[[int], measure.Measurement]:
    def run(number: int) -> measure.Measurement:
        tune = _TUNE.format(trials=trials, steps=steps, seed=number + 1, halving=halving)
        log = measure.run_taxi(folder, "--to", "Tuner", "--json", "--set", f"tune={tune}")
        result = json.loads(log.read_text().splitlines()[-1])
        records = result["results"]["Tuner"]["trials"]
        losses.append(records[0]["loss"])
        counts.append(sum(record["steps"] or 0 for record in records))
        node = result["nodes"]["Tuner"]
        return measure.Measurement(node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])

    return run


if __name__ == "__main__":
    main()
