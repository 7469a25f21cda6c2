"""Measure the memory of a mesh's devices and the cost of a step, with a large network on logical devices.

python -m benchmarks.mesh [--steps 100] [--rounds 1]

The network is trained on the taxi example. The devices share the cores of this machine, so that the times show the cost
of dividing the work, not a gain.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure

_SHAPES = ((1, 2), (1, 4), (2, 1), (2, 2))
_HIDDEN = [2048, 1024]


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    facts: measure.Facts = {"hidden layers": _HIDDEN}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # Run the other nodes first, so that the trainings find them in the cache.
        measure.run_taxi(folder, "--to", "Transform")
        strategies = {"none": "{kind: none}"} | {
            f"data {data}, model {model}": f"{{kind: mesh, data: {data}, model: {model}}}" for data, model in _SHAPES
        }
        sides = {name: _side(folder, name, strategy, options.steps, facts) for name, strategy in strategies.items()}
        measured = measure.in_turns(sides, options.rounds)
    command = f"python -m benchmarks.mesh --steps {options.steps} --rounds {options.rounds}"
    print(measure.record("mesh", command, measured, facts))


def _side(
    folder: Path, name: str, strategy: str, steps: int, facts: measure.Facts
) -> Callable[[int], measure.Measurement]:
    def run(number: int) -> measure.Measurement:
        # Use another seed in each round, so that the trainings are not cached.
        training = {"strategy": strategy, "steps": steps, "seed": number + 1}
        assignments = [f"training.{key}={value}" for key, value in training.items()]
        sets = [part for setting in (*assignments, f"model.hidden={_HIDDEN}") for part in ("--set", setting)]
        output = measure.run_taxi(folder, "--to", "Trainer", "--json", *sets)
        node = json.loads(output.read_text().splitlines()[-1])["nodes"]["Trainer"]
        log = max(folder.glob("taxi/logs/*/Trainer.log")).read_text()
        for device, weights, moments in re.findall(r"root: (\S+): (\S+) bytes of weights, (\S+) bytes of mom", log):
            facts[f"{name}, {device}"] = f"{weights} bytes of weights, {moments} of moments"
        facts[f"{name}, the curve"] = ", ".join(re.findall(r"root: step \d+: (loss \S+), ", log))
        return measure.Measurement(node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])

    return run


if __name__ == "__main__":
    main()
