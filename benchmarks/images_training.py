"""Measure the input's share of a training step on JPEGs of 224 by 224, decoded for each batch and decoded once.

python -m benchmarks.images_training [--rounds 1] [--images 600]

Each process takes the Trainer's steps in turns with its real input and with a decoded batch in memory; see
training_program.py. The share is computed from the additional CPU-seconds of the real input, so that it does not depend
on other load on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Measurement, Spread
from benchmarks.training import Turns
from components.compat.tensorflow import ENVIRONMENT
from data import shapes
from data.output import positive

_CONFIG = "configs/shapes.yaml"
_MODELS = {
    "EfficientNetB0": ("{kind: application, application: EfficientNetB0}", 16, 60),
    "cnn": ("{kind: cnn, filters: [16, 32, 64, 128]}", 16, 200),
}
"""Model → model section, batch size, and number of steps with each input."""
_SIDES = {"decoded for each batch": "memory", "decoded once": "pixels"}
"""Side → value of training.cache."""
_COMMON = ("training.augmentation={flip: true, crop: 0.2}", "training.steps_per_execution=5")
_WANTED = 0.15
"""Target for the input's share with EfficientNetB0."""


@dataclass(frozen=True)
class Bench:
    """Settings and results of the benchmark.

    Attributes:
      images: Folder of the images.
      output: Output folder of the runs.
      turns: Model and side → CPU time of the steps, by round.
    """

    images: Path
    output: Path
    turns: dict[str, list[Turns]]

    def prepare(self) -> None:
        """Run the pipeline up to Transform."""
        log = self.output.with_suffix(".log")
        settings = [part for setting in self._paths() for part in ("--set", setting)]
        command = [sys.executable, "runner.py", "--local", "--config", _CONFIG, "--to", "Transform", *settings]
        measure.run(command, log)

    def side(self, model: str, side: str) -> Callable[[int], Measurement]:
        """Return a function that runs a side once, and appends the CPU time of its steps to `turns`."""
        section, batch, steps = _MODELS[model]
        chosen = (f"model={section}", f"training.batch_size={batch}", f"training.cache={_SIDES[side]}", *_COMMON)
        program = ("-m", "benchmarks.training_program", "input", "ours", str(steps), _CONFIG)

        def run(_number: int) -> Measurement:
            log = self.output.with_suffix(".log")
            measured = measure.run([sys.executable, *program, *self._paths(), *chosen], log)
            turns = Turns(**json.loads(log.read_text().splitlines()[-1]))
            self.turns.setdefault(f"{model}, {side}", []).append(turns)
            return measured

        return run

    def _paths(self) -> tuple[str, str]:
        return f"data.path={self.images}", f"runtime.output={self.output}"


def shares(turns: dict[str, list[Turns]]) -> measure.Facts:
    """Return the CPU time of a step with both inputs, and the input's share, by model and side."""
    facts: measure.Facts = {}
    for model, (_, batch, steps) in _MODELS.items():
        for side in _SIDES:
            name = f"{model}, {side}"
            for kind in ("real", "constant"):
                milliseconds = Spread.of(1000 * getattr(round_, kind) / steps for round_ in turns[name])
                facts[f"CPU-ms of a step of {batch}, {kind} input: {name}"] = milliseconds
            facts[f"share of the input: {name}"] = Spread.of(
                1 - round_.constant / round_.real for round_ in turns[name]
            )
    return {**facts, "wanted of EfficientNetB0": f"at most {_WANTED}"}


def main() -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=1)
    parser.add_argument("--images", type=positive, default=600)
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch) / "shapes", Path(scratch) / "out", {})
        shapes.write(bench.images, options.images)
        bench.prepare()
        sides = {f"{model}, {side}": bench.side(model, side) for model in _MODELS for side in _SIDES}
        measured = measure.in_turns(sides, options.rounds)
    command = f"python -m benchmarks.images_training --rounds {options.rounds} --images {options.images}"
    print(measure.record("images", command, measured, shares(bench.turns)))


if __name__ == "__main__":
    main()
