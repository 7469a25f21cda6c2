"""Rows of tables move to the ids with the same meaning, and those of new ids begin as configured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.config import FeaturesConfig
from components.features.plan import FeaturePlan
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.trainer import warm_start
from components.trainer.config import NewIds

pytestmark = pytest.mark.both_lines


class Graph:
    """The vocabularies of a transform graph."""

    def __init__(self, folder: Path, vocabularies: Mapping[str, Sequence[str]]) -> None:
        self._folder = folder
        (folder / "assets").mkdir(parents=True)
        for name, entries in vocabularies.items():
            (folder / "assets" / name).write_text("".join(f"{entry}\n" for entry in entries))

    def vocabulary_file_by_name(self, name: str) -> str | None:
        file = self._folder / "assets" / name
        return str(file) if file.exists() else None

    def vocabulary_size_by_name(self, name: str) -> int:
        return len((self._folder / "assets" / name).read_bytes().splitlines())


class Model:
    """A network of some columns with values that tell its rows apart.

    Args:
      folder: of its export.
      columns: of the features.
      vocabularies: of the features.
      seed: of the weights.
    """

    def __init__(
        self, folder: Path, columns: Mapping[str, Any], vocabularies: Mapping[str, Sequence[str]], seed: int
    ) -> None:
        self.folder, self.graph = folder, Graph(folder, vocabularies)
        features = FeaturesConfig.model_validate({"columns": columns})
        self.plan = FeaturePlan(features=features, label="clicked", task="binary")
        given = inputs(self.plan, self.graph.vocabulary_size_by_name)
        self.network: tf_keras.Model = build(ModelConfig(kind="mlp", hidden=(2,), embedding=4), given, 1)
        random = np.random.default_rng(seed)
        for variable in self.network.variables:
            variable.assign(random.normal(size=variable.shape))

    def export(self) -> None:
        tf.train.Checkpoint(weights=self.network.variables).write(str(self.folder / "variables" / "variables"))
        warm_start.describe(self.network, self.plan, self.graph, str(self.folder))

    def start(self, earlier: Model, new_ids: NewIds) -> None:
        warm_start.initialize(self.network, str(earlier.folder), self.plan, self.graph, new_ids)

    def rows(self, variable: str = "rows") -> np.ndarray:
        [found] = [each for each in self.network.variables if each.name.endswith(f"/{variable}:0")]
        return tf.convert_to_tensor(found).numpy()


Make = Callable[..., Model]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(columns: Mapping[str, Any], vocabularies: Mapping[str, Sequence[str]], seed: int) -> Model:
        return Model(tmp_path / str(seed), columns, vocabularies, seed)

    return made


ITEM = {"item": {"vocab": {"embedding": 4, "oov_buckets": 3}}}


@pytest.mark.parametrize("new_ids", ["mean", "unknown", "random"])
def test_new_values_begin_with_a_prior_and_old_ones_are_left_out(make: Make, new_ids: NewIds) -> None:
    earlier = make(ITEM, {"item_vocab": ["a", "b", "c"]}, 1)
    earlier.export()
    later = make(ITEM, {"item_vocab": ["c", "d", "a", "e"]}, 2)
    initial = later.rows()
    later.start(earlier, new_ids)
    before, after = earlier.rows(), later.rows()
    # Missing, c, d, a, e, three buckets of unknown values; earlier missing, a, b, c, and the buckets.
    np.testing.assert_array_equal(after[[0, 1, 3, 5, 6, 7]], before[[0, 3, 1, 4, 5, 6]])
    buckets = tf.strings.to_hash_bucket_fast(["d", "e"], 3).numpy()
    expected = {
        "mean": before[[3, 1]].mean(axis=0)[np.newaxis],
        "unknown": before[4 + buckets],
        "random": initial[[2, 4]],
    }
    np.testing.assert_array_equal(after[[2, 4]], np.broadcast_to(expected[new_ids], (2, 4)))
    assert not np.isin(before[2], after).any(), "b is no longer in the table"


def test_frequent_buckets_keep_their_rows(make: Make) -> None:
    user = {"user": {"hash": {"buckets": 100, "min_frequency": 2, "embedding": 4}}}
    earlier = make(user, {"user_hash": ["17", "4"]}, 1)
    earlier.export()
    later = make(user, {"user_hash": ["4", "99"]}, 2)
    later.start(earlier, "unknown")
    np.testing.assert_array_equal(later.rows(), earlier.rows()[[0, 2, 3, 3]])
    other = make(
        {"user": {"hash": {"buckets": 50, "min_frequency": 2, "embedding": 4}}}, {"user_hash": ["4", "17"]}, 9000
    )
    initial = other.rows()
    other.start(earlier, "unknown")
    np.testing.assert_array_equal(other.rows(), initial, "other buckets have other values")


def composed(op: str, **more: Any) -> dict[str, Any]:
    return {"item": {op: {"embedding": 4, "quotient_remainder": 3, **more}}}


def test_composed_vectors_are_copied_if_all_ids_are_the_same(make: Make) -> None:
    earlier = make(composed("hash", buckets=20), {}, 1)
    earlier.export()
    later = make(composed("hash", buckets=20), {}, 2)
    later.start(earlier, "mean")
    assert (later.rows().shape, later.rows("quotients").shape) == ((7, 4), (3, 4))
    for variable in ("rows", "quotients"):
        np.testing.assert_array_equal(later.rows(variable), earlier.rows(variable))


@pytest.mark.parametrize(
    ("columns", "vocabularies"),
    [
        (composed("vocab"), {"item_vocab": ["b", "a", "c"]}),
        (composed("vocab", composition="sum"), {"item_vocab": ["a", "b", "c"]}),
        ({"item": {"vocab": {"embedding": 4}}}, {"item_vocab": ["a", "b", "c"]}),
    ],
    ids=["other-ids", "other-composition", "a-row-per-id"],
)
def test_other_ids_do_not_take_parts_of_composed_vectors(
    make: Make, columns: dict[str, Any], vocabularies: dict[str, Any]
) -> None:
    earlier = make(composed("vocab"), {"item_vocab": ["a", "b", "c"]}, 1)
    earlier.export()
    later = make(columns, vocabularies, 2)
    initial = later.rows()
    later.start(earlier, "mean")
    np.testing.assert_array_equal(later.rows(), initial)
