"""Tests of warm starts: known IDs keep their embeddings, and the embeddings of new IDs begin as configured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.plan import FeaturePlan
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.trainer import warm_start
from components.trainer.config import NewIds

pytestmark = pytest.mark.both_lines


class Graph:
    """A transform graph that only has vocabularies."""

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
    """A network whose weights are random, so that every row of a table can be told apart.

    Args:
      folder: Folder of the exported model.
      columns: Columns of the features section.
      vocabularies: Entries of the vocabularies, by name.
      seed: Seed of the random weights.
    """

    def __init__(
        self, folder: Path, columns: Mapping[str, Any], vocabularies: Mapping[str, Sequence[str]], seed: int
    ) -> None:
        self.folder, self.graph = folder, Graph(folder, vocabularies)
        features = FeaturesConfig.model_validate({"columns": columns})
        self.plan = FeaturePlan(features=features, labels=(Label("clicked"),), task="binary")
        model_inputs = inputs(self.plan, self.graph.vocabulary_size_by_name)
        self.network: tf_keras.Model = build(ModelConfig(kind="mlp", hidden=(2,), embedding=4), model_inputs, 1)
        random = np.random.default_rng(seed)
        for variable in self.network.variables:
            variable.assign(random.normal(size=variable.shape))

    def export(self) -> None:
        tf.train.Checkpoint(weights=self.network.variables).write(str(self.folder / "variables" / "variables"))
        warm_start.describe(self.network, self.plan, self.graph, str(self.folder))

    def start(self, earlier: Model, new_ids: NewIds) -> None:
        warm_start.initialize(self.network, str(earlier.folder), self.plan, self.graph, new_ids)

    def rows(self, variable: str = "rows") -> np.ndarray:
        [table] = [weights for weights in self.network.variables if weights.name.endswith(f"/{variable}:0")]
        return tf.convert_to_tensor(table).numpy()


Make = Callable[..., Model]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def create(columns: Mapping[str, Any], vocabularies: Mapping[str, Sequence[str]], seed: int) -> Model:
        return Model(tmp_path / str(seed), columns, vocabularies, seed)

    return create


ITEM = {"item": {"vocab": {"embedding": 4, "oov_buckets": 3}}}


@pytest.mark.parametrize("new_ids", ["mean", "unknown", "random"])
def test_new_ids_begin_as_configured_and_dropped_ids_are_not_copied(make: Make, new_ids: NewIds) -> None:
    earlier = make(ITEM, {"item_vocab": ["a", "b", "c"]}, 1)
    earlier.export()
    later = make(ITEM, {"item_vocab": ["c", "d", "a", "e"]}, 2)
    initial = later.rows()
    later.start(earlier, new_ids)
    before, after = earlier.rows(), later.rows()
    # The rows of the new table are missing, c, d, a, e and three buckets of unknown IDs. The rows of the old table are
    # missing, a, b, c and the buckets.
    np.testing.assert_array_equal(after[[0, 1, 3, 5, 6, 7]], before[[0, 3, 1, 4, 5, 6]])
    buckets = tf.strings.to_hash_bucket_fast(["d", "e"], 3).numpy()
    expected = {
        "mean": before[[3, 1]].mean(axis=0)[np.newaxis],
        "unknown": before[4 + buckets],
        "random": initial[[2, 4]],
    }
    np.testing.assert_array_equal(after[[2, 4]], np.broadcast_to(expected[new_ids], (2, 4)))
    assert not np.isin(before[2], after).any(), "b is no longer in the table"


def test_options_that_earlier_releases_lack_do_not_prevent_copies(make: Make) -> None:
    date = {"when": {"date_part": {"part": "month", "embedding": 4}}}
    earlier = make(date, {}, 1)
    earlier.export()
    file = earlier.folder / "assets.extra" / "warm_start.json"
    description = json.loads(file.read_text())
    del description["ids"]["when_month"]["op"]["holidays"]
    file.write_text(json.dumps(description))
    later = make(date, {}, 2)
    later.start(earlier, "mean")
    np.testing.assert_array_equal(later.rows(), earlier.rows())


@pytest.mark.parametrize("new_ids", ["mean", "unknown"])
def test_words_with_weights_keep_their_embeddings(make: Make, new_ids: NewIds) -> None:
    note = {"note": {"text": {"vocabulary": 9, "weighting": "tf_idf", "embedding": 4}}}
    earlier = make(note, {"note_text": ["red\t1.0", "blue hat\t1.5"]}, 1)
    earlier.export()
    later = make(note, {"note_text": ["new\t1.0", "blue hat\t1.25", "red\t1.75"]}, 2)
    initial = later.rows()
    later.start(earlier, new_ids)
    np.testing.assert_array_equal(later.rows()[[0, 2, 3]], earlier.rows()[[0, 2, 1]])
    # A word that the earlier vocabulary lacks had no ID.
    expected = {"mean": earlier.rows()[[2, 1]].mean(axis=0), "unknown": initial[1]}
    np.testing.assert_array_equal(later.rows()[1], expected[new_ids])


def test_frequent_buckets_keep_their_embeddings(make: Make) -> None:
    user = {"user": {"hash": {"buckets": 100, "min_frequency": 2, "embedding": 4}}}
    earlier = make(user, {"user_hash": ["17", "4"]}, 1)
    earlier.export()
    later = make(user, {"user_hash": ["4", "99"]}, 2)
    later.start(earlier, "unknown")
    np.testing.assert_array_equal(later.rows(), earlier.rows()[[0, 2, 3, 3]])
    other_model = make(
        {"user": {"hash": {"buckets": 50, "min_frequency": 2, "embedding": 4}}}, {"user_hash": ["4", "17"]}, 9000
    )
    initial = other_model.rows()
    other_model.start(earlier, "unknown")
    np.testing.assert_array_equal(other_model.rows(), initial, "other buckets have other values")


def test_logits_of_labels_in_another_order_are_not_copied(make: Make) -> None:
    labels = (Label("clicked", "click"), Label("bought", "buy"))
    earlier, same, swapped = (make(ITEM, {"item_vocab": ["a"]}, seed) for seed in (1, 2, 3))
    for model in (earlier, same, swapped):
        ordered = labels[::-1] if model is swapped else labels
        model.plan = model.plan.model_copy(update={"labels": ordered})
    earlier.export()
    for model in (same, swapped):
        model.start(earlier, "mean")
        np.testing.assert_array_equal(model.rows(), earlier.rows())
        logits = [network.get_layer("logits").kernel.numpy() for network in (earlier.network, model.network)]
        assert np.array_equal(*logits) is (model is same)


def composed_column(op: str, **options: Any) -> dict[str, Any]:
    return {"item": {op: {"embedding": 4, "quotient_remainder": 3, **options}}}


def test_composed_embeddings_are_copied_if_all_ids_are_the_same(make: Make) -> None:
    earlier = make(composed_column("hash", buckets=20), {}, 1)
    earlier.export()
    later = make(composed_column("hash", buckets=20), {}, 2)
    later.start(earlier, "mean")
    assert (later.rows().shape, later.rows("quotients").shape) == ((7, 4), (3, 4))
    for variable in ("rows", "quotients"):
        np.testing.assert_array_equal(later.rows(variable), earlier.rows(variable))


@pytest.mark.parametrize(
    ("columns", "vocabularies"),
    [
        (composed_column("vocab"), {"item_vocab": ["b", "a", "c"]}),
        (composed_column("vocab", composition="sum"), {"item_vocab": ["a", "b", "c"]}),
        ({"item": {"vocab": {"embedding": 4}}}, {"item_vocab": ["a", "b", "c"]}),
    ],
    ids=["other-ids", "other-composition", "a-row-per-id"],
)
def test_composed_embeddings_are_not_copied_for_other_ids(
    make: Make, columns: dict[str, Any], vocabularies: dict[str, Any]
) -> None:
    earlier = make(composed_column("vocab"), {"item_vocab": ["a", "b", "c"]}, 1)
    earlier.export()
    later = make(columns, vocabularies, 2)
    initial = later.rows()
    later.start(earlier, "mean")
    np.testing.assert_array_equal(later.rows(), initial)
