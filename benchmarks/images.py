"""The input's share of a training on JPEGs: decoded for each batch, decoded once, and once without random changes.

python -m benchmarks.images [--rounds 1] [--images 800]

The trainings are those of the pipeline's Trainer, in its own process. Each side trains twice, with few steps and with
more, and reports the difference, so that neither the start nor the export counts, nor the decoding of what is then kept
in memory. The share of the input is what a side takes above the last one, whose images are already decoded.
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


@dataclass(frozen=True)
class Bench:
    """Where the images are, and where the runs write."""

    images: Path
    output: Path

    def side(self, model: str, settings: tuple[str, ...]) -> Callable[[int], Measurement]:
        """What runs a side once: the time and CPU time of a step."""
        section, batch, steps = _MODELS[model]

        def run(number: int) -> Measurement:
            given = (f"model={section}", f"training.batch_size={batch}", f"training.seed={number}", *settings)
            few, more = (self._trainer(f"training.steps={each}", *given) for each in steps)
            count = steps[1] - steps[0]
            return Measurement((more.wall - few.wall) / count, (more.cpu - few.cpu) / count, more.peak_mb)

        return run

    def _trainer(self, *settings: str) -> Measurement:
        config = (f"data.path={self.images}", f"runtime.output={self.output}", *settings)
        given = [part for each in config for part in ("--set", each)]
        command = [sys.executable, "runner.py", "--local", "--config", "configs/shapes.yaml", "--to", "Trainer"]
        log = self.output.with_suffix(".log")
        measure.run([*command, "--json", *given], log)
        node = json.loads(log.read_text().splitlines()[-1])["nodes"]["Trainer"]
        return Measurement(node["seconds"], node["cpu_seconds"], node["peak_memory_mb"])


def shares(measured: measure.Measurements) -> measure.Facts:
    """The share of the input in the CPU-seconds of a step, by model and side."""
    facts: measure.Facts = {}
    for model in _MODELS:
        rest = measure.figures(measured[f"{model}, {_REST}"], "cpu")
        for side in _SIDES:
            if side != _REST:
                steps = measure.figures(measured[f"{model}, {side}"], "cpu")
                facts[f"share of the input: {model}, {side}"] = Spread.of(
                    1 - without / step for step, without in zip(steps, rest, strict=True)
                )
    return {**facts, "wanted of EfficientNetB0": f"at most {_WANTED}"}


def main() -> None:
    """Measures, prints the table and writes it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=1)
    parser.add_argument("--images", type=positive, default=800)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch) / "shapes", Path(scratch) / "out")
        shapes.write(bench.images, options.images)
        sides = {
            f"{model}, {side}": bench.side(model, settings) for model in _MODELS for side, settings in _SIDES.items()
        }
        measured = measure.in_turns(sides, options.rounds)
    command = f"python -m benchmarks.images --rounds {options.rounds} --images {options.images}"
    print(measure.record("images", command, measured, shares(measured)))


if __name__ == "__main__":
    main()
