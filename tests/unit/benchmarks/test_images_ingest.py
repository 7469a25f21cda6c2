"""Tests of the image ingest benchmark: its three inputs hold the same images, and its variants process them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import images_ingest as images
from benchmarks import measure
from benchmarks.measure import Measurement, Work
from components.data import tfrecord
from components.ingest import image_check

COUNT = 6


def test_inputs_hold_the_same_images(tmp_path: Path) -> None:
    total = images.generate(tmp_path, COUNT)
    names = [line.split(",")[0] for line in (tmp_path / "photos.csv").read_text().splitlines()[1:]]
    files = [(tmp_path / name).read_bytes() for name in names]
    assert len(set(files)) == COUNT
    assert sum(map(len, files)) == total
    assert not [file for file in files if isinstance(image_check.examine(file, 1), str)]
    examples = [record for chunk in tfrecord.records(str(tmp_path / "photos.tfrecord.gz")) for record in chunk.records]
    assert all(file in record for file, record in zip(files, examples, strict=True))
    assert images._side("check", str(tmp_path / "classes"), tmp_path, COUNT)(0).work is not None


def test_facts_compare_the_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], _log: Path, rows: int) -> Measurement:
        if command[3] == "folders":
            (Path(command[5]) / "images").mkdir(parents=True)
            (Path(command[5]) / "images" / "train.parquet").write_bytes(bytes(30))
        work = Work(rows=rows, wall=1.0, cpu=1.0 if command[3] == "check" else 4.0, peak_mb=1.0)
        return Measurement(wall=1.0, cpu=1.0, peak_mb=1.0, work=work)

    monkeypatch.setattr(measure, "run", run)
    measured, facts = images.images(tmp_path, COUNT, 1)
    assert list(measured) == [
        *("folders", "table", "records", "check", "statistics"),
        *(f"{side} of {count:,}" for count in images._COMPARED for side in ("similarity", "search")),
    ]
    assert facts["bytes of an image's facts, on the disk"] == 5
    assert str(facts["CPU-seconds, check alone / folders"]) == "0.250 (0.250 to 0.250)"
