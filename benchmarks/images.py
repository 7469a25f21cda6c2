"""Measure images per second of the training's input, against a pipeline written by hand with `tf.data` alone.

python -m benchmarks.images [--images 1_000] [--rounds 5]

The images are the generated JPEGs of 224 by 224 pixels of images_ingest.py. Each process (images_program.py) reads one
file format with one kind of cache. It takes batches of both pipelines in turns, with and without augmentation, so that
other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import images_ingest, measure
from benchmarks.measure import Facts, Measurement, Spread
from components.compat.tensorflow import ENVIRONMENT
from data.output import positive

FORMATS, CACHES = ("parquet", "tfrecord"), ("none", "memory", "pixels")
BATCH = 32
Turns = Mapping[str, Mapping[str, Sequence[float]]]
"""`plain` or `augmented`, and a figure → its values by round. The figures are `ours` and `floor`, images per second,
and `ours cpu` and `floor cpu`, CPU-seconds per image."""


def compare(sides: Mapping[str, Turns]) -> Facts:
    """Return the images per second, the CPU time of an image, and the ratios of both, by side and pipeline."""
    facts: Facts = {}
    for side, turns in sides.items():
        for images, figures in turns.items():
            name = f"{side}, {images}"
            for pipeline in ("ours", "floor"):
                facts[f"images/s, {pipeline}: {name}"] = Spread.of(figures[pipeline])
                milliseconds = Spread.of(1000 * seconds for seconds in figures[f"{pipeline} cpu"])
                facts[f"CPU-ms of an image, {pipeline}: {name}"] = milliseconds
            facts[f"images/s, ours / floor: {name}"] = _divide(figures["ours"], figures["floor"])
            facts[f"CPU time, ours / floor: {name}"] = _divide(figures["ours cpu"], figures["floor cpu"])
    return facts


def _divide(over: Sequence[float], under: Sequence[float]) -> Spread:
    return Spread.of(above / below for above, below in zip(over, under, strict=True))


def _side(folder: Path, form: str, cache: str, rounds: int, turns: dict[str, Turns]) -> Callable[[int], Measurement]:
    """Return a function that runs a side once, and stores its figures in `turns`."""
    command = [sys.executable, "-m", "benchmarks.images_program", form, cache, str(folder), str(rounds)]

    def run(_number: int) -> Measurement:
        log = folder / f"{form}-{cache}.log"
        measured = measure.run(command, log)
        turns[f"{form}, cache {cache}"] = json.loads(log.read_text().splitlines()[-1])
        return measured

    return run


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=positive, default=1_000, help="number of images")
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="turns of each pipeline in a process")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    os.environ.update(ENVIRONMENT)
    turns: dict[str, Turns] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        images_ingest.generate(folder, options.images)
        measure.run([sys.executable, "-m", "benchmarks.images_program", "write", str(folder)], folder / "write.log")
        sides = {
            f"{form}, cache {cache}": _side(folder, form, cache, options.rounds, turns)
            for form in FORMATS
            for cache in CACHES
        }
        measured = measure.in_turns(sides, 1)
    command = shlex.join(["python", "-m", "benchmarks.images", *arguments])
    facts = {"turns of each pipeline": options.rounds, "images in a batch": BATCH, **compare(turns)}
    print(measure.record("images_input", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
