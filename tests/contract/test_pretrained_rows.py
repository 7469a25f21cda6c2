"""Embeddings begin with the vectors of a file, and a changed file trains again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.data import people
from tests.support.runs.command import command

VECTORS = {"Paris": [1.5, -2, 0.25], "Łódź": [4, 0, 1]}
RATE = 1e-6
"""So low that one step changes nothing that the test sees."""
SERVERS = {"kind": "parameter_server", "workers": 2, "ps": 2, "shard_over_mb": 1e-6}


def write_vectors(path: Path) -> Path:
    path.write_text("".join(f"{name} {' '.join(map(str, vector))}\n" for name, vector in VECTORS.items()), "utf-8")
    return path


def write_config(folder: Path, **training: Any) -> Path:
    city = {"vocab": {"embedding": 3, "vectors": str(write_vectors(folder / "cities.txt"))}}
    return people.write_config(
        folder / "people.yaml",
        people.write(folder / "people.csv", people.rows(400)),
        features={"columns": {"age": "z_score", "city": city}},
        training={"steps": 1, "batch_size": 64, "learning_rate": RATE, **training},
    )


def train(config: Path) -> Any:
    arguments = ("--local", "--config", str(config), "--output", str(config.parent / "out"), "--to", "Trainer")
    return command(*arguments, "--json").result


def read_rows(folder: Path) -> dict[str, Any]:
    """Return city → its row in the exported table, float32 [3]."""
    (model,) = folder.glob("out/**/Trainer/model/*/Format-Serving")
    description = json.loads((model / "assets.extra" / "warm_start.json").read_text())
    table = next(name for name, features in description["tables"].items() if features == ["city_vocab"])
    position = description["variables"].index(table)
    reader = tf.train.load_checkpoint(str(model / "variables" / "variables"))
    rows = reader.get_tensor(f"weights/{position}/.ATTRIBUTES/VARIABLE_VALUE")
    entries = (model / "assets" / description["ids"]["city_vocab"]["file"]).read_text("utf-8").splitlines()
    return dict(zip(entries, rows[1:], strict=False))


@pytest.mark.parametrize(
    "training",
    [
        pytest.param({}, marks=pytest.mark.extended, id="none"),
        pytest.param({"strategy": {"kind": "mirrored"}}, marks=pytest.mark.slow, id="mirrored"),
        pytest.param({"strategy": SERVERS}, marks=pytest.mark.slow, id="parameter_server"),
        pytest.param({"folds": 2, "early_stopping": 1}, marks=pytest.mark.slow, id="folds"),
    ],
)
def test_embeddings_begin_with_the_vectors_of_a_file(training: dict[str, Any], tmp_path: Path) -> None:
    assert train(write_config(tmp_path, **training))["state"] == "done"
    rows = read_rows(tmp_path)
    assert set(rows) == {*VECTORS, "New; York"}
    for city, vector in VECTORS.items():
        np.testing.assert_allclose(rows[city], vector, rtol=0, atol=10 * RATE)
    assert np.abs(rows["New; York"]).max() < 1, "at random"


@pytest.mark.extended
def test_changed_file_trains_again(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    assert train(config)["nodes"]["Trainer"]["state"] == "done"
    assert train(config)["nodes"]["Trainer"]["state"] == "cached"
    with (tmp_path / "cities.txt").open("a") as file:
        file.write("Rome 1 2 3\n")
    again = train(config)["nodes"]
    assert (again["ExampleGen"]["state"], again["Trainer"]["state"]) == ("cached", "done")
