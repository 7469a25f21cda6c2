"""Partial dependence equals scikit-learn's on the same SavedModel; interactions equal a closed form in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import partial_dependence as sklearn_dependence

from components.data.examples import to_lists
from components.evaluator.dependence import Dependence, GridPoint
from components.evaluator.interactions import choose_link, measure_pairs
from components.evaluator.partial_dependence import draw_rows
from components.evaluator.value_grid import Grid, make_grid
from tests.support.data.tolerances import float32_sum, float64_sum, rounding
from tests.support.runs import interpretation_runs
from tests.support.runs.interpretation_runs import MISSING, PRODUCT, make_table
from tests.support.servers.in_fork_server import in_child

ROWS = 64
"""So few rows that all of them are averaged, also for interactions."""
MEAN = float32_sum(ROWS, largest=30.0)


def interpret(folder: Path, formula: str, rows: int, fields: dict[str, Any] | None = None) -> Dependence:
    _, dependence = in_child(folder / "log", interpretation_runs.interpret, folder, formula, rows, fields)
    assert isinstance(dependence, Dependence)
    return dependence


@pytest.fixture(scope="module")
def of_product(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dependence]:
    folder = tmp_path_factory.mktemp("product")
    return folder, interpret(folder, "product", ROWS)


def predict_by_sklearn(model: str, columns: list[str]) -> dict[str, tuple[list[Any], Any, Any]]:
    """Return scikit-learn's grids and partial dependence of a SavedModel, by column, and for the first two columns."""
    import tensorflow as tf

    serve = tf.saved_model.load(model).signatures["serving_default"]

    class Estimator(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self) -> Any:
            self.fitted_ = True
            return self

        def predict(self, table: pd.DataFrame) -> Any:
            rows = []
            for row in table.to_dict("records"):
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
                    if isinstance(value, str)
                    else tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
                    for name, value in row.items()
                    if value == value
                }
                rows.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
            return serve(examples=tf.constant(rows))["output"].numpy().astype(float)

    table = pd.DataFrame(make_table(ROWS))
    table["gap"] = table["gap"].fillna(MISSING)
    results = {}
    for features in [[name] for name in columns] + [columns[:2]]:
        categorical = [name for name in features if name == "color"] or None
        bunch = sklearn_dependence(
            Estimator().fit(),
            table,
            features,
            categorical_features=categorical,
            percentiles=(0, 1),
            kind="both" if len(features) == 1 else "average",
            grid_resolution=1000,
        )
        individual = bunch.get("individual")
        results[",".join(features)] = ([list(grid) for grid in bunch["grid_values"]], bunch["average"][0], individual)
    return results


@pytest.mark.both_lines
def test_curves_equal_scikit_learns(of_product: tuple[Path, Dependence]) -> None:
    folder, dependence = of_product
    assert (dependence.rows, dependence.output, dependence.skipped, dependence.notes) == (ROWS, "prediction", {}, ())
    expected = in_child(folder / "sklearn", predict_by_sklearn, str(folder / "model"), ["whole", "level", "color"])
    for name in ("whole", "level", "color"):
        column = dependence.find(name)
        assert column is not None
        assert column.numeric is (name != "color")
        (grid,), means, individual = expected[name]
        by_value = {value: at for at, value in enumerate(grid)}
        places = [by_value[point.value] for point in column.points if point.kind == "value"]
        [curve] = column.curves
        MEAN.assert_close(curve.means[: len(places)], means[places])
        moved = individual[0] - individual[0].mean(axis=1, keepdims=True) + means.mean()
        if len(places) == len(grid):
            low, high = np.quantile(moved[:, places], [0.1, 0.9], axis=0)
            MEAN.assert_close(curve.low, low)
            MEAN.assert_close(curve.high, high)
    heat_map = dependence.heat_map
    assert heat_map is not None
    assert heat_map.columns == ("whole", "level")
    grids, means, _ = expected["whole,level"]
    assert [[point.value for point in points] for points in heat_map.points] == grids
    MEAN.assert_close(heat_map.means, means)


def test_texts_are_ordered_by_frequency_and_rare_ones_share_a_point() -> None:
    column = to_lists(pa.RecordBatch.from_pydict({"color": make_table(2000)["color"]})).column(0)
    grid = make_grid(column, 20, 5)
    assert isinstance(grid, Grid)
    frequencies = pd.Series(make_table(2000)["color"]).value_counts(normalize=True)
    assert [point.value for point in grid.points] == [*frequencies.index[:4], None]
    assert [point.kind for point in grid.points] == ["value"] * 4 + ["others"]
    shares = [*frequencies[:4], frequencies[4:].sum()]
    float64_sum(2000).assert_close([point.share for point in grid.points], shares)
    rows = grid.choose_rows(50, np.random.default_rng(0))
    assert rows.shape == (5, 50)
    texts = make_table(2000)["color"]
    assert [set(texts[of_point]) for of_point in rows[:4]] == [{text} for text in frequencies.index[:4]]
    assert set(texts[rows[4]]) <= set(frequencies.index[4:])


def test_interactions_equal_the_closed_form(of_product: tuple[Path, Dependence]) -> None:
    """Less its mean, the product c·x·y differs from a sum of functions by c·(x·y - mean(y)·x - mean(x)·y)."""
    _, dependence = of_product
    first, *others = dependence.interactions
    assert (first.columns, dependence.interaction_rows, dependence.scale) == (("whole", "level"), ROWS, "prediction")
    table = make_table(ROWS)
    x, y = table["whole"].astype(float), table["level"].astype(float)
    rest = PRODUCT["both"] * (x * y - y.mean() * x - x.mean() * y)
    both = PRODUCT["whole"] * x + PRODUCT["level"] * y + PRODUCT["both"] * x * y
    MEAN.assert_close(first.strength, rest.std())
    rounding(2 * ROWS).assert_close(first.h**2, rest.var() / both.var())
    assert {len({*interaction.columns} & {"whole", "level", "color", "x1"}) for interaction in others} == {2}
    assert [(interaction.strength, interaction.h) for interaction in others] == [(0.0, 0.0)] * 5


@pytest.mark.extended
def test_missing_values_are_a_point_and_additive_models_have_no_interactions(tmp_path: Path) -> None:
    dependence = interpret(tmp_path, "additive", 400, {"weight": "weight"})
    gap = dependence.find("gap")
    assert gap is not None
    table = make_table(400)
    share = float(np.isnan(table["gap"]).mean())
    assert gap.points[-1] == GridPoint(None, share, "missing")
    [curve] = gap.curves
    numbers = np.array([point.value for point in gap.points[:-1]], float)
    # The effect of a number is the number, and of a missing value 2, in every row.
    MEAN.assert_close(np.array(curve.means) - curve.means[-1], [*(numbers - 2), 0.0])
    MEAN.assert_close(curve.low, curve.means)
    MEAN.assert_close(curve.high, curve.means)
    # Quantiles from 1 % to 99 % of the present values.
    present = np.sort(table["gap"][~np.isnan(table["gap"])])
    places = np.round(np.linspace(0.01, 0.99, 20) * (len(present) - 1)).astype(int)
    np.testing.assert_array_equal(numbers, present[places])
    assert {interaction.h for interaction in dependence.interactions} == {0.0}
    assert dependence.heat_map is None
    assert Dependence.from_json(dependence.to_json()) == dependence


@pytest.mark.extended
def test_a_logistic_regression_has_no_interactions(tmp_path: Path) -> None:
    dependence = interpret(tmp_path, "logistic", 1500)
    assert (dependence.output, dependence.scale) == ("probability", "log-odds")
    assert {interaction.h for interaction in dependence.interactions} == {0.0}
    # The curves show probabilities, whose spread between rows is not 0.
    [curve] = dependence.columns[0].curves
    assert all(low < high for low, high in zip(curve.low, curve.high, strict=True))


@pytest.mark.extended
def test_a_slow_model_uses_fewer_rows_or_is_not_measured(tmp_path: Path) -> None:
    thresholds = {"mean_squared_error": {"max": 9}}
    fields = {"evaluation": {"importance_seconds": 1e-9, "max_importance": {"x1": 0.9}, "thresholds": thresholds}}
    dependence = interpret(tmp_path, "additive", 600, fields)
    assert dependence.unknown == "the model is too slow; raise evaluation.importance_seconds"
    fields["evaluation"] = {"dependence_columns": 0, "thresholds": thresholds}
    (tmp_path / "none").mkdir()
    assert interpret(tmp_path / "none", "additive", 600, fields).unknown == "evaluation.dependence_columns is 0"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * 4, "all values are missing"),
        ([[1.0, 2.0], [1.0]], "rows have several values"),
        ([[3.0], [3.0]], "all values are equal"),
        ([[b"x" * 300], [b"y"]], "texts are longer than 200 bytes"),
        ([[b"\xff"], [b"y"]], "values are not valid UTF-8"),
        ([[str(number).encode()] for number in range(30)], "most texts occur only once"),
        ([[float("nan")], [float("inf")]], "all values are equal"),
    ],
)
def test_columns_without_a_grid_are_skipped_with_the_reason(values: list[Any], reason: str) -> None:
    is_missing = values[0] is None
    is_text = not is_missing and isinstance(values[0][0], bytes)
    kind = pa.null() if is_missing else pa.large_list(pa.large_binary() if is_text else pa.float32())
    assert make_grid(pa.array(values, kind), 20, 10) == reason


def test_rows_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.array([0.0, 1.0, 2.0, 5.0] * 10)
    rows = draw_rows(weights, 100, np.random.default_rng(0))
    # Systematic sampling is off by less than one per row; there are as many draws as rows with a weight.
    difference = np.bincount(rows, minlength=len(weights)) - 30 * weights / weights.sum()
    assert len(rows) == 30
    assert np.abs(difference).max() < 1
    assert sorted(draw_rows(np.ones(50), 80, np.random.default_rng(0))) == list(range(50))
    np.testing.assert_array_equal(rows, draw_rows(weights, 100, np.random.default_rng(0)))


def test_a_softmax_regression_has_no_interactions() -> None:
    """On the scale of log-ratios the logits of a linear model are additive; probabilities are not."""
    random = np.random.default_rng(0)
    table, factors = random.normal(size=(60, 2)), random.normal(size=(2, 4))

    def predict(sources: Any, rows: Any) -> Any:
        logits = sum(table[sources.get(name, rows), at, None] * factors[at] for at, name in enumerate("ab"))
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    def predict_ratios(sources: Any, rows: Any) -> Any:
        return choose_link("multiclass", None).transform(predict(sources, rows))

    rows = np.arange(60)
    assert [(pair.strength, pair.h) for pair in measure_pairs(predict_ratios, "ab", rows)] == [(0.0, 0.0)]
    assert measure_pairs(predict, "ab", rows)[0].h > 0.05
