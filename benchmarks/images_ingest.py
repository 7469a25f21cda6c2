"""Measure ingest and statistics of images in folders, in a table and in records, and the search for near duplicates.

python -m benchmarks.images_ingest [--images 2_000] [--rounds 5]

The images are generated JPEGs of 224 by 224 pixels. Each side is a process (images_ingest_program.py) with one worker.
The columns with `work` measure only the executor, the other columns the whole process with its imports. `check` only
reads and checks the images.
"""

from __future__ import annotations

import argparse
import io
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import measure
from benchmarks.measure import Facts, Measurement, Measurements
from components.data.tfrecord_writer import TfrecordWriter, frame_examples
from data.output import positive

_SIZE = 224
_COMPARED = (10_000, 100_000, 1_000_000)
"""Numbers of images of the sides `similarity` and `search`."""


def generate(folder: Path, count: int) -> int:
    """Write the same images as files of two classes, as a table of file names, and as records; return their bytes."""
    import pyarrow as pa

    random = np.random.default_rng(0)
    files: list[bytes] = []
    lines = ["file,label\n"]
    for number in range(count):
        # A few large shapes and some noise, so that a file is about as large as a photo.
        shapes = Image.fromarray(random.integers(0, 256, (14, 14, 3), np.uint8)).resize((_SIZE, _SIZE))
        pixels = np.asarray(shapes, np.float32) + random.normal(0, 8, (_SIZE, _SIZE, 1))
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
        path = folder / "classes" / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[-1])
        lines.append(f"classes/{number % 2}/{number}.jpg,{number % 2}\n")
    (folder / "photos.csv").write_text("".join(lines))
    writer = TfrecordWriter(str(folder / "photos.tfrecord.gz"))
    for start in range(0, count, 500):
        part = files[start : start + 500]
        labels = pa.array([[number % 2] for number in range(start, start + len(part))], pa.large_list(pa.int64()))
        images = pa.array([[image] for image in part], pa.large_list(pa.large_binary()))
        writer.write(frame_examples(pa.RecordBatch.from_arrays([images, labels], ["image", "label"])))
    writer.close()
    return sum(map(len, files))


def images(folder: Path, count: int, rounds: int) -> tuple[Measurements, Facts]:
    """Measure all sides on `count` images; images and examples are written to `folder`."""
    total = generate(folder, count)
    inputs = {
        "folders": folder / "classes",
        "table": folder / "photos.csv",
        "records": folder / "photos.tfrecord.gz",
        "check": folder / "classes",
        "statistics": folder / "out-folders",
    }
    sides = {name: _side(name, str(path), folder, count) for name, path in inputs.items()}
    for compared in _COMPARED:
        for side in ("similarity", "search"):
            sides[f"{side} of {compared:,}"] = _side(side, str(compared), folder, compared)
    measured = measure.in_turns(sides, rounds, 0)
    facts = sum(path.stat().st_size for path in (folder / "out-folders" / "images").iterdir())
    return measured, {
        "images": count,
        "bytes of the images": total,
        "bytes of an image's facts, on the disk": round(facts / count, 1),
        "CPU-seconds, check alone / folders": measure.ratio(measured["check"], measured["folders"], "work.cpu"),
        "similarity, search": "a fifth of the images is compared with the others, in a process and on Beam",
    }


def _side(name: str, source: str, folder: Path, rows: int) -> Callable[[int], Measurement]:
    output = folder / f"out-{name}"
    command = [sys.executable, "-m", "benchmarks.images_ingest_program", name, source, str(output)]

    def run(_number: int) -> Measurement:
        shutil.rmtree(output, ignore_errors=True)
        return measure.run(command, folder / f"{name}.log", rows)

    return run


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table and write it to results/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.images_ingest", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--images", type=positive, default=2_000, help="number of images")
    parser.add_argument("--rounds", type=positive, default=measure.ROUNDS, help="runs of each side")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder of the record")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measured, facts = images(Path(folder), options.images, options.rounds)
    command = shlex.join(["python", "-m", "benchmarks.images_ingest", *arguments])
    print(measure.record("images", command, measured, facts, options.results))


if __name__ == "__main__":
    main(sys.argv[1:])
