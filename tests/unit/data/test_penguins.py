"""Tests that the penguins are copied once from the installed TFX, and have the columns of TFX's penguin example."""

from __future__ import annotations

from collections import Counter

import numpy as np

from components.data.examples import Examples
from data import penguins


def test_both_splits_are_copied_once(tmp_path, capsys):
    assert penguins.main(["--output", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eval.tfrecord.gz", "train.tfrecord.gz"]
    for split in penguins.SPLITS:
        assert (tmp_path / f"{split}.tfrecord.gz").read_bytes() == penguins.find_source(split).read_bytes()
    assert "2 files, 7,422 bytes" in capsys.readouterr().out
    assert penguins.main(["--output", str(tmp_path)]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_every_penguin_has_a_species_and_scaled_measurements():
    paths = tuple(str(penguins.find_source(split)) for split in penguins.SPLITS)
    train, evaluated = Examples(paths, "tfrecord").batches()
    assert (train.num_rows, evaluated.num_rows) == (234, 100)
    species: Counter[int] = Counter()
    for batch in (train, evaluated):
        columns = {name: np.asarray(batch.column(name).flatten()) for name in batch.schema.names}
        assert all(len(values) == batch.num_rows for values in columns.values())
        species.update(columns.pop("species").tolist())
        assert sorted(columns) == ["body_mass_g", "culmen_depth_mm", "culmen_length_mm", "flipper_length_mm"]
        assert all(0 <= values.min() < values.max() <= 1 for values in columns.values())
    assert species == {0: 146, 1: 68, 2: 120}
