"""Tests of the benchmark of images: its ratios, and that both pipelines read the same images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import images, images_ingest, images_program
from benchmarks.measure import Spread
from components.trainer import input_pipeline


def test_ratios_compare_the_turns_of_a_round() -> None:
    turns = {"ours": [100.0, 300.0], "floor": [200.0, 200.0], "ours cpu": [0.004, 0.002], "floor cpu": [0.002, 0.002]}
    facts = images.compare({"parquet, cache none": {"plain": turns}})
    assert facts["images/s, ours / floor: parquet, cache none, plain"] == Spread(1.0, 0.5, 1.5)
    assert facts["CPU-ms of an image, ours: parquet, cache none, plain"] == Spread(3.0, 2.0, 4.0)
    assert facts["CPU time, ours / floor: parquet, cache none, plain"] == Spread(1.5, 1.0, 2.0)


@pytest.mark.extended
@pytest.mark.parametrize("form", images.FORMATS)
def test_both_pipelines_read_the_same_images(tmp_path: Path, form: str) -> None:
    images_ingest.generate(tmp_path, images.BATCH)
    images_program.write(tmp_path)
    files = input_pipeline.find([str(tmp_path / f"{form}-?")])
    read = {}
    for create in (images_program._ours, images_program._floor):
        pixels: list[np.ndarray] = []
        batches = create(form, files, "memory", False)()
        while len(pixels) < 8 * images.BATCH:
            features, _ = next(batches)
            batch = features["image"] if isinstance(features, dict) else features
            pixels += list(batch.numpy().reshape(images.BATCH, -1))
        read[create] = {tuple(np.round(image[::10_000], 3)) for image in pixels}
    ours, floor = read.values()
    assert len(ours) == images.BATCH
    assert floor <= ours
