"""Tests of training forests: predictions equal those by YDF, and the validation part determines depth and size."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import ydf
from scipy.special import expit, logit

from components.base.errors import InputError
from components.models.config import ModelConfig
from components.models.forest import TreeInput
from components.trainer import forest_learner, memory_rows
from components.trainer.forest_conversion import predict_logits
from components.trainer.forest_learner import ForestLearner, SelectedForest, Shape, predict
from components.trainer.losses import binary_crossentropy, deviance, focal
from components.trainer.memory_rows import Rows, read
from components.trainer.prediction_head import (
    BinaryHead,
    DevianceHead,
    MulticlassHead,
    PredictionHead,
    RegressionHead,
)
from components.trainer.validation_part import FoldMasks
from tests.support.data.tolerances import float32_sum, rounding

ROWS = 1000
FOREST = float32_sum(40, largest=0.5)
"""Tolerance when summing the leaf values of 40 trees in float32."""
MEAN = rounding(8)
"""Tolerance when averaging float32 losses in float64."""
INPUTS = [TreeInput("x", "number"), TreeInput("word", "category"), TreeInput("words", "words", 0)]


def head(task: str, **options: Any) -> PredictionHead:
    heads: dict[str, PredictionHead] = {
        "binary": BinaryHead(**options),
        "multiclass": MulticlassHead(outputs=4, classes="abcd"),
        "regression": RegressionHead(scale=(5.0, 2.0)),
    }
    return heads[task]


def rows(task: str, seed: int = 0, count: int = ROWS) -> Rows:
    """Return random rows whose label depends on every feature. With `multiclass`, no row belongs to class 2."""
    random = np.random.default_rng(seed)
    x = random.normal(size=count).astype(np.float32)
    word, words = random.integers(0, 40, count), random.integers(0, 30, (count, 3))
    score = x + (word % 3 == 0) + 2 * (words == 7).any(axis=1) + random.normal(size=count) * 0.3
    label = {
        "binary": (score > 0.5).astype(np.int64),
        "multiclass": np.array([0, 1, 3])[np.digitize(score, [0, 1])],
        "regression": score.astype(np.float32) * 2 + 5,
    }[task]
    return Rows({"x": x, "word": word, "words": words}, label)


def concatenate_rows(first: Rows, second: Rows) -> Rows:
    features = {name: np.concatenate([values, second.features[name]]) for name, values in first.features.items()}
    weight = None if first.weight is None or second.weight is None else np.concatenate([first.weight, second.weight])
    return Rows(features, np.concatenate([first.label, second.label]), weight)


def mark_validation_rows(training: Rows, validation: Rows) -> tuple[Rows, list[FoldMasks]]:
    """Return all rows, and the masks of the rows to train on and of the validation part."""
    rows = concatenate_rows(training, validation)
    return rows, [FoldMasks.of(np.arange(len(rows.label)) >= len(training.label))]


def learner(task: str, **config: Any) -> ForestLearner:
    return ForestLearner(ModelConfig(kind="gbt", **config), head(task), INPUTS, seed=1)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the models that YDF trains, in the order of training, and return the list."""
    trained: list[Any] = []
    train = ydf.GradientBoostedTreesLearner.train

    def train_and_record(*arguments: Any, **options: Any) -> Any:
        trained.append(train(*arguments, **options))
        return trained[-1]

    monkeypatch.setattr(ydf.GradientBoostedTreesLearner, "train", train_and_record)
    return trained


def test_only_depths_are_compared_when_the_time_is_over(models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest_learner, "_LEAST_SECONDS", 1e-3)
    training = rows("binary")
    hurried = dataclasses.replace(learner("binary", trees=5000), seconds=0.0)
    selected = hurried.select(*mark_validation_rows(training, rows("binary", seed=1)))
    assert len(models) == len(forest_learner._DEPTHS)
    assert 1 <= selected.shape.trees < 100
    assert np.isfinite(selected.loss)


@pytest.mark.parametrize(
    ("task", "exact", "oblique"),
    [
        ("binary", 10**6, False),
        ("binary", 10**6, True),
        ("binary", 10, False),
        ("binary", 10, True),
        ("multiclass", 10, False),
        pytest.param("multiclass", 10**6, True, marks=pytest.mark.extended),
        ("regression", 10, False),
    ],
)
def test_exported_forest_predicts_the_same_as_ydf(
    task: str, exact: int, oblique: bool, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest_learner, "_EXACT", exact)
    training, unseen = rows(task), rows(task, seed=1)
    tree_learner = learner(task, depth=5, trees=40)
    selected = tree_learner.select(*mark_validation_rows(training, training))
    trees = tree_learner.refit(selected._replace(shape=selected.shape._replace(oblique=oblique)), training)
    assert (trees.columns.shape[1] > 1) == oblique
    boundaries = {column.name: column.discretized_numerical.boundaries for column in models[-1].data_spec().columns}
    assert bool(boundaries["0"]) == (exact < ROWS and not oblique), "thresholds are quantiles"
    logits = predict(trees, unseen.features)
    dataset = tree_learner._create_dataset(trees.inputs, unseen)
    ydf_predictions = models[-1].predict(dataset).reshape(ROWS, -1)
    if task == "multiclass":
        probabilities = tf.nn.softmax(logits).numpy()
        assert probabilities[:, 2].max() < 1e-4, "a class that no row has"
        FOREST.assert_close(probabilities[:, [0, 1, 3]] if oblique else logits[:, [0, 1, 3]], ydf_predictions)
    else:
        FOREST.assert_close(expit(logits) if oblique else logits, ydf_predictions)
    if not oblique:
        FOREST.assert_close(logits, predict_logits(models[-1], dataset, logits.shape[1]))
    assert tree_learner.loss(unseen, logits) < {"binary": 0.3, "multiclass": 0.5, "regression": 0.3}[task]


@pytest.mark.parametrize(("exact", "oblique"), [(10, False), (10**6, True)])
def test_forests_of_several_seeds_are_averaged(
    exact: int, oblique: bool, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest_learner, "_EXACT", exact)
    training, unseen = rows("binary"), rows("binary", seed=1)
    tree_learner = learner("binary", depth=5, trees=40, forests=3)
    shape = Shape(5, 40, oblique=oblique)
    trees = tree_learner.refit(SelectedForest(shape, np.zeros((0, 1), np.float32), 0.0), training)
    assert [model.num_trees() for model in models] == [40, 40, 40]
    dataset = tree_learner._create_dataset(trees.inputs, unseen)
    logits = np.array([model.predict(dataset).astype(np.float64) for model in models])
    logits = logit(logits) if oblique else logits
    assert np.abs(logits[0] - logits[1]).max() > 0.1, "the forests differ by their seeds"
    FOREST.assert_close(predict(trees, unseen.features)[:, 0], logits.mean(axis=0))


@pytest.mark.parametrize(("seconds", "count"), [(-1.0, 1), (60.0, 3)])
def test_a_mean_has_one_forest_if_there_is_no_time_for_all(seconds: float, count: int, models: list[Any]) -> None:
    tree_learner = learner("binary", depth=4, trees=10, forests=3)
    selected = SelectedForest(Shape(4, 10), np.zeros((0, 1), np.float32), 0.0)
    tree_learner.refit(selected, rows("binary"), time.monotonic() + seconds)
    assert len(models) == count


@pytest.mark.parametrize("loss", ["poisson", "focal"])
def test_forest_is_trained_with_the_loss_of_the_head(loss: Any, models: list[Any]) -> None:
    training, config = rows("binary"), ModelConfig(kind="gbt", loss=loss, depth=4, trees=40)
    prediction_head: PredictionHead = BinaryHead(row_loss=focal(binary_crossentropy, config.focal_gamma))
    if loss == "poisson":
        training = training._replace(label=np.random.default_rng(2).poisson(1 + 5 * training.label).astype(np.float32))
        prediction_head = DevianceHead(scale=(0.0, float(training.label.mean())), row_loss=deviance(1.0))
    tree_learner = ForestLearner(config, prediction_head, INPUTS, seed=1)
    selected = tree_learner.select(*mark_validation_rows(training, training))
    trees = tree_learner.refit(selected, training)
    logits = predict(trees, training.features)
    ydf_predictions = models[-1].predict(tree_learner._create_dataset(trees.inputs, training))
    FOREST.assert_close(logits[:, 0], ydf_predictions)
    initial_loss = float(tf.reduce_mean(prediction_head.losses(tf.constant(training.label), tf.zeros([ROWS, 1]))))
    assert selected.loss < 0.6 * initial_loss


def test_learner_chooses_the_shape_with_the_lowest_validation_loss() -> None:
    training, validation = rows("binary"), rows("binary", seed=1)
    tree_learner = learner("binary", shrinkage=0.3)
    all_rows, masks = mark_validation_rows(training, validation)
    selected = tree_learner.select(all_rows, masks)
    folds = [tree_learner._make_fold(all_rows, masks[0])]
    depths = tree_learner._train_shapes([Shape(depth, 2000) for depth in (4, 6, 8)], folds)
    best = min(depths, key=lambda candidate: candidate.loss)
    (random_partition,) = tree_learner._train_shapes([best.shape._replace(trees=2000, partition="RANDOM")], folds)
    best = min(best, random_partition, key=lambda candidate: candidate.loss)
    assert (selected.shape, selected.loss) == (best.shape, best.loss)
    assert 5 < selected.shape.trees < 500
    assert selected.loss == MEAN.approx(tree_learner.loss(validation, selected.logits))


@pytest.mark.extended
def test_loss_of_a_row_comes_from_the_fold_that_was_not_trained_on_it() -> None:
    training = rows("binary", count=400)
    noise = np.random.default_rng(3).integers(0, 2, 400)
    tree_learner = learner("binary", depth=4, shrinkage=0.3)
    fold = np.arange(400) % 4
    selected = tree_learner.select(
        training._replace(label=noise), [FoldMasks.of(fold == number) for number in range(4)]
    )
    assert np.log(2) - 0.005 < selected.loss, "what a forest has learned by heart helps in no other row"
    selected = tree_learner.select(training, [FoldMasks.of(fold == number) for number in range(4)])
    trees = tree_learner.refit(selected, training.where(fold != 2))
    FOREST.assert_close(selected.logits[fold == 2], predict(trees, training.where(fold == 2).features))
    assert selected.loss == MEAN.approx(tree_learner.loss(training, selected.logits))


@pytest.mark.parametrize("oblique", [True, pytest.param(False, marks=pytest.mark.extended)])
def test_oblique_splits_are_chosen_if_the_label_depends_on_a_sum_of_numbers(oblique: bool) -> None:
    inputs = [TreeInput("x", "number", width=6)]
    training, validation = (
        Rows({"x": values}, (values[:, 0] + values[:, 1] * (1 if oblique else 0) > 0).astype(np.int64))
        for values in np.random.default_rng(4).normal(size=(2, ROWS, 6)).astype(np.float32)
    )
    tree_learner = ForestLearner(ModelConfig(kind="gbt", depth=4, shrinkage=0.3), head("binary"), inputs, seed=1)
    assert tree_learner.select(*mark_validation_rows(training, validation)).shape.oblique == oblique


@pytest.mark.extended
def test_random_partition_is_chosen_for_many_categories_without_a_signal() -> None:
    random = np.random.default_rng(3)
    training, validation = (
        Rows({**part.features, "word": random.integers(0, 45, ROWS)}, part.label)
        for part in (rows("binary"), rows("binary", seed=1))
    )
    assert (
        learner("binary", shrinkage=0.3).select(*mark_validation_rows(training, validation)).shape.partition == "RANDOM"
    )


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_forest_reads_means_of_the_label_instead_of_many_categories(task: str, models: list[Any]) -> None:
    training, unseen = (
        part._replace(features={**part.features, "shop": np.random.default_rng(seed).integers(0, 400, ROWS)})
        for seed, part in enumerate([rows(task), rows(task, seed=1)])
    )
    inputs = [*INPUTS, TreeInput("shop", "category")]
    tree_learner = dataclasses.replace(learner(task, depth=4, trees=40), inputs=inputs)
    selected = tree_learner.select(*mark_validation_rows(training, training.where(np.arange(ROWS) < 100)))
    trees = tree_learner.refit(selected, training)
    assert [tree_input.kind for tree_input in trees.inputs] == ["number", "category", "words", "means"]
    assert trees.inputs[-1].width == (3 if task == "multiclass" else 1), "a number per class that occurs"
    dataset = tree_learner._create_dataset(trees.inputs, unseen)
    logits = predict(trees, unseen.features)
    FOREST.assert_close(logits, predict_logits(models[-1], dataset, logits.shape[1]))


def test_many_categories_do_not_hide_what_they_say_nor_reveal_the_label() -> None:
    """With two rows per ID, a tree that read means with the row's own label would learn the labels by heart."""
    random = np.random.default_rng(0)
    inputs = [TreeInput("x", "number"), TreeInput("shop", "category")]
    effect, losses = random.normal(size=300) * 3, {}
    for name, shops in {"informative": 300, "noise": 2 * ROWS}.items():
        shop = random.integers(0, shops, 4 * ROWS)
        score = effect[shop] if name == "informative" else np.zeros(4 * ROWS)
        label = random.binomial(1, expit(score))
        table = Rows({"x": random.normal(size=4 * ROWS).astype(np.float32), "shop": shop}, label)
        forest = ForestLearner(ModelConfig(kind="gbt", depth=4), head("binary"), inputs, seed=1)
        losses[name] = forest.select(table, [FoldMasks.of(np.arange(4 * ROWS) % 4 == 0)]).loss
    assert losses["informative"] < 0.5 < np.log(2) - 0.15
    assert losses["noise"] < np.log(2) + 0.005


@pytest.mark.extended
def test_depth_is_chosen_on_a_sample_of_a_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    training, validation = rows("binary"), rows("binary", seed=1)
    shape = (
        learner("binary", shrinkage=0.3).select(*mark_validation_rows(training.sample(300, seed=1), validation)).shape
    )
    monkeypatch.setattr(forest_learner, "_COMPARED", 300)
    selected = learner("binary", shrinkage=0.3).select(*mark_validation_rows(training, validation))
    assert selected.shape[::2] == shape[::2], "depth and partition"
    assert selected.shape.trees != shape.trees
    assert len(selected.logits) == ROWS


def test_forest_trained_on_noise_predicts_almost_a_constant() -> None:
    random = np.random.default_rng(0)
    noise = [rows("binary", seed)._replace(label=random.integers(0, 2, ROWS)) for seed in (0, 1)]
    selected = learner("binary").select(*mark_validation_rows(*noise))
    assert selected.loss < np.log(2) + 0.005


def test_words_that_the_label_depends_on_are_selected() -> None:
    count = forest_learner._WORDS
    training = rows("binary")
    random = np.random.default_rng(2)
    words = random.integers(1, 500, (ROWS, 3))
    words[training.label == 1, 0] = 123
    tree_learner = learner("binary")
    selected = tree_learner._choose_words(words, training.label)
    assert 123 in selected
    assert len(selected) == count


def test_rare_and_unknown_ids_are_not_categories() -> None:
    training = Rows({"word": np.array([9] * 5 + [3] * 4 + [1] * 7)}, np.zeros(16))
    (tree_input,) = dataclasses.replace(learner("binary"), inputs=[INPUTS[1]]).choose_ids(training)
    assert tree_input.ids == (1, 9)


def test_class_weights_move_the_predictions() -> None:
    training = rows("binary")
    heavy = ForestLearner(
        ModelConfig(kind="gbt", depth=3, trees=20),
        head("binary", weights=lambda label: tf.where(label > 0, 10.0, 1.0)),
        INPUTS,
        seed=1,
    )
    plain = learner("binary", depth=3, trees=20)
    means = [
        predict(
            tree_learner.refit(tree_learner.select(*mark_validation_rows(training, training)), training),
            training.features,
        ).mean()
        for tree_learner in (plain, heavy)
    ]
    assert means[1] > means[0] + 0.5


def test_rows_of_weight_0_change_neither_trees_nor_loss() -> None:
    training, flipped = rows("binary"), rows("binary", seed=2)
    flipped = flipped._replace(label=1 - flipped.label, weight=np.zeros(ROWS, np.float32))
    unit_weights = np.ones(ROWS, np.float32)
    all_rows = concatenate_rows(training._replace(weight=unit_weights), flipped)
    tree_learner = ForestLearner(
        ModelConfig(kind="gbt", depth=3, trees=20), head("binary", mean_weight=0.5), INPUTS, seed=1
    )
    validation = rows("binary", seed=1)._replace(weight=unit_weights)
    selected = tree_learner.select(*mark_validation_rows(all_rows, validation))
    selected_without_weights = learner("binary", depth=3, trees=20).select(
        *mark_validation_rows(training, validation._replace(weight=None))
    )
    assert selected.loss == pytest.approx(selected_without_weights.loss, abs=0.05)
    logits = predict(tree_learner.refit(selected, all_rows), all_rows.features)
    assert tree_learner.loss(all_rows, logits) == MEAN.approx(tree_learner.loss(training, logits[:ROWS]))
    assert len(all_rows.sample(50, seed=1).weight) == 50


def test_same_seed_trains_the_same_forest() -> None:
    rows_and_masks = mark_validation_rows(rows("binary"), rows("binary", 1))
    first, second = (learner("binary", depth=4, trees=20).select(*rows_and_masks) for _ in range(2))
    np.testing.assert_array_equal(first.logits, second.logits)


def test_rows_that_do_not_fit_into_memory_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_rows, "_MEMORY", 1e-9)
    batch = ({"x": tf.zeros([1000])}, tf.zeros([1000, 1]))
    with pytest.raises(InputError, match=r"model: it is trained on rows in memory; expected at most"):
        read([batch])


@pytest.mark.parametrize(("task", "direction", "exact"), [("binary", 1, 10**6), ("regression", -1, 10)])
def test_prediction_never_moves_against_the_direction_of_a_column(
    task: str, direction: int, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The label follows a wave of x, so that trees without a direction rise and fall."""
    monkeypatch.setattr(forest_learner, "_EXACT", exact)
    random = np.random.default_rng(0)
    x, other = random.uniform(-3, 3, ROWS), random.normal(size=ROWS)
    score = np.sin(3 * x) + direction * x + 0.5 * other
    label = (score > 0).astype(np.int64) if task == "binary" else score.astype(np.float32)
    training = Rows({"x": x.astype(np.float32), "other": other.astype(np.float32)}, label)
    inputs = [TreeInput("x", "number"), TreeInput("other", "number")]
    falls = []
    for directions in ({"x": direction}, {}):
        forest = ForestLearner(ModelConfig(kind="gbt", trees=60), head(task), inputs, 1, directions)
        selected = forest.select(training, [FoldMasks.of(np.arange(ROWS) % 5 == 0)])
        trees = forest.refit(selected, training)
        grid = np.linspace(-3, 3, 200, dtype=np.float32)
        logits = [predict(trees, {"x": grid, "other": np.full_like(grid, value)})[:, 0] for value in (-1, 0, 1)]
        falls.append(min(float((direction * np.diff(values)).min()) for values in logits))
        assert np.std(logits) > 0.1
    assert falls[0] >= -FOREST.atol
    assert falls[1] < -0.1
