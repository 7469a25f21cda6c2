"""The input's share of a training on JPEGs: decoded for each batch, decoded once, and once without random changes.

python -m benchmarks.images [--rounds 1] [--images 800]

The trainings are those of the pipeline's Trainer, in its own process. Each side trains twice, with few steps and with
more. A step's CPU time is that of the steps between, so that neither the start nor the export counts, nor the decoding
of what is then kept in memory. The share of the input is what a step takes above one of the last side, whose images are
already decoded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Measurement, Spread
from data import shapes
from data.output import positive

_MODELS = {
    "EfficientNetB0": ("{kind: application, application: EfficientNetB0}", 16, (10, 50)),
    "cnn": ("{kind: cnn, filters: [16, 32, 64, 128]}", 32, (50, 250)),
}
"""Model → its section, the batch size, and the steps of both trainings."""
_CHANGES = "training.augmentation={flip: true, crop: 0.2}"
_NONE = "training.augmentation={}"
_SIDES = {
    "decoded for each batch": ("training.cache=memory", _CHANGES),
    "decoded once": ("training.cache=pixels", _CHANGES),
    "decoded once, unchanged": ("training.cache=pixels", _NONE),
}
_REST = "decoded once, unchanged"
"""The side without input, but for a copy of a batch."""
_WANTED = 0.15
"""The share of the input that is wanted at most, of EfficientNetB0."""


Steps = dict[str, list[float]]
"""Model and side → the CPU-seconds of a step in each round."""


@dataclass(frozen=True)
class Bench:
    """Where the images are, where the runs write, and what their steps took."""

    images: Path
    output: Path
    steps: Steps

    def side(self, name: str, model: str, settings: tuple[str, ...]) -> Callable[[int], Measurement]:
        """What runs a side once; it measures the longer training, and appends the CPU-seconds of a step to `steps`."""
        section, batch, (least, most) = _MODELS[model]

        def run(number: int) -> Measurement:
            given = (f"model={section}", f"training.batch_size={batch}", f"training.seed={number}", *settings)
            few, more = (self._trainer(f"training.steps={each}", *given) for each in (least, most))
            self.steps.setdefault(name, []).append((more.cpu - few.cpu) / (most - least))
            return more

        return run

    def _trainer(self, *settings: str) -> Measurement:
        config = (f"data.path={self.images}", f"runtime.output={self.output}", *settings)
        given = [part for each in config for part in ("--set", each)]
        command = [sys.executable, "runner.py", "--local", "--config", "configs/shapes.yaml", "--to", "Trainer"]
        log = self.output.with_suffix(".log")
        measure.run([*command, "--json", *given], log)
        node = json.loads(log.read_text().splitlines()[-1])["nodes"]["Trainer"]
        return Measurement(node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])


def shares(steps: Steps) -> measure.Facts:
    """The CPU time of a step, and the input's share of it, by model and side."""
    facts: measure.Facts = {}
    for model, (_, batch, _) in _MODELS.items():
        rest = steps[f"{model}, {_REST}"]
        for side in _SIDES:
            own = steps[f"{model}, {side}"]
            facts[f"CPU-ms of a step of {batch}: {model}, {side}"] = Spread.of(1000 * each for each in own)
            if side != _REST:
                pairs = zip(own, rest, strict=True)
                facts[f"share of the input: {model}, {side}"] = Spread.of(1 - below / step for step, below in pairs)
    return {**facts, "wanted of EfficientNetB0": f"at most {_WANTED}"}


def main() -> None:
    """Measures, prints the table and writes it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=1)
    parser.add_argument("--images", type=positive, default=800)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch) / "shapes", Path(scratch) / "out", {})
        shapes.write(bench.images, options.images)
        names = {f"{model}, {side}": (model, side) for model in _MODELS for side in _SIDES}
        sides = {name: bench.side(name, model, _SIDES[side]) for name, (model, side) in names.items()}
        measured = measure.in_turns(sides, options.rounds)
    command = f"python -m benchmarks.images --rounds {options.rounds} --images {options.images}"
    print(measure.record("images", command, measured, shares(bench.steps)))


if __name__ == "__main__":
    main()
