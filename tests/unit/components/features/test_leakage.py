"""Columns that alone predict the label are found, whereas strong columns of real data are not reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn import datasets
from sklearn.metrics import roc_auc_score

from components.base.config_section import Task
from components.features import leakage
from components.features.leakage import Leak, find
from tests.support.data.tolerances import float64_sum

ROWS = 2_000
RANDOM = np.random.default_rng(4)
LABEL = (RANDOM.random(ROWS) < 0.3).astype(float)
NOISE = RANDOM.normal(size=ROWS)
WORDS = np.array(["red", "green", "blue"])[RANDOM.integers(0, 3, ROWS)]


def present(values: Any, where: Any) -> pa.Array:
    return pa.array(values, mask=~where)


def leaks(column: pa.Array, labels: Any = LABEL, task: Task = "binary") -> list[tuple[str, float]]:
    result = find({"column": column}, np.asarray(labels, float), task)
    assert result.unknown is None
    return [(leak.kind, leak.figure) for leak in result.leaks]


@pytest.mark.parametrize(
    ("column", "kind", "figure"),
    [
        pytest.param(pa.array(LABEL * 3 - NOISE * 1e-3), "value", 1.0, id="number"),
        pytest.param(pa.array(-(LABEL * 3) + NOISE * 1e-3), "value", 1.0, id="number-in-the-other-direction"),
        pytest.param(pa.array(LABEL.astype(np.int64) + 7), "value", 1.0, id="integer"),
        pytest.param(pa.array((LABEL - 0.25) * RANDOM.choice([-4, 4], ROWS)), "value", 1.0, id="any-order"),
        pytest.param(pa.array([b"paid" if label else b"open" for label in LABEL]), "value", 1.0, id="text"),
        pytest.param(
            present(WORDS, (LABEL == 1) ^ (RANDOM.random(ROWS) < 0.02)),
            "filled",
            pytest.approx(0.98, abs=0.01),
            id="filled",
        ),
        pytest.param(
            present(WORDS, (LABEL == 0) & (RANDOM.random(ROWS) < 0.15)), "filled", 1.0, id="filled-now-and-then"
        ),
        pytest.param(
            present(NOISE, (LABEL == 0) | (RANDOM.random(ROWS) < 0.7)), "filled", 1.0, id="missing-now-and-then"
        ),
        pytest.param(
            pa.array([[1, 2] if label else None for label in LABEL], pa.large_list(pa.int64())),
            "filled",
            1.0,
            id="lists",
        ),
        pytest.param(
            pa.array(np.argsort(np.argsort(LABEL + 0.15 * NOISE))),
            "order",
            pytest.approx(0.99, abs=0.01),
            id="identifier",
        ),
    ],
)
def test_column_that_alone_predicts_the_label_is_found(column: pa.Array, kind: str, figure: float) -> None:
    assert leaks(column) == [(kind, figure)]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(LABEL + 0.3 * NOISE), id="strong-number"),
        pytest.param(pa.array(np.where(RANDOM.random(ROWS) < 0.02, 1 - LABEL, LABEL)), id="nearly-a-copy"),
        pytest.param(pa.array([f"{at}" for at in range(ROWS)]), id="a-text-in-each-row"),
        pytest.param(pa.array(np.arange(ROWS)), id="identifier-without-order"),
        pytest.param(present(WORDS, (LABEL == 1) ^ (RANDOM.random(ROWS) < 0.08)), id="filled-rather-often"),
        pytest.param(present(WORDS, np.isin(np.arange(ROWS), np.flatnonzero(LABEL == 0)[:20])), id="filled-in-few"),
        pytest.param(pa.nulls(ROWS), id="never-filled"),
        pytest.param(pa.array([7] * ROWS), id="constant"),
    ],
)
def test_other_columns_are_not_reported(column: pa.Array) -> None:
    assert leaks(column) == []


def test_leaks_of_multiclass_and_regression_labels_are_found() -> None:
    classes = RANDOM.integers(0, 5, ROWS)
    texts = pa.array([f"class {number}" for number in classes])
    assert leaks(texts, classes, "multiclass") == [("value", 1.0)]
    # A column may be filled for a single class only without being a leak.
    assert leaks(present(WORDS, classes == 2), classes, "multiclass") == []
    price = np.exp(NOISE)
    assert leaks(pa.array(price * 0.9), price, "regression") == [("value", float64_sum(ROWS).approx(1.0))]
    assert leaks(pa.array(np.log(price) ** 3), price, "regression") == [("value", float64_sum(ROWS).approx(1.0))]
    assert leaks(pa.array(np.round(price, 2).astype(str)), price, "regression") == []
    assert leaks(pa.array(price + 0.2 * RANDOM.normal(size=ROWS)), price, "regression") == []


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_columns_that_predict_much_better_than_all_others_are_found(task: Task) -> None:
    random = np.random.default_rng(8)
    classes = random.integers(0, 2 if task == "binary" else 4, ROWS)
    labels = classes + random.normal(size=ROWS) * (task == "regression")
    # The final grade contains the label, with some errors.
    known = np.where(random.random(ROWS) < 0.02, (classes + 1) % 2, classes)
    grade = labels + 0.1 * random.normal(size=ROWS) if task == "regression" else known.astype(float)
    others = {f"other{number}": pa.array(labels + (number + 3) * random.normal(size=ROWS)) for number in range(4)}
    columns = {"grade": pa.array(grade), **others, "color": pa.array(WORDS), "few": present(NOISE, LABEL == 1)}
    columns["infinite"] = pa.array(np.where(np.arange(ROWS) % 9, NOISE, np.inf))
    [leak] = find(columns, labels.astype(float), task).leaks
    assert (leak.column, leak.kind) == ("grade", "strong")
    assert 0.95 <= leak.figure < 0.998
    assert "better than all other columns together: " in leak.why
    # The same grade may be in the table twice, in other units.
    copy = grade + 1e-3 * random.normal(size=ROWS)
    copies = find({**columns, "points": pa.array(9 * copy)}, labels.astype(float), task).leaks
    assert [(leak.column, leak.kind) for leak in copies] == [("grade", "strong"), ("points", "strong")]
    assert "better than all columns other than grade, points together: " in copies[0].why
    # Strong columns among columns that predict well together say no more than the task is easy.
    good = {f"good{number}": pa.array(labels + 0.5 * random.normal(size=ROWS)) for number in range(8)}
    assert find({**columns, **good, "points": pa.array(9 * copy)}, labels.astype(float), task).leaks == ()


def make_bill() -> dict[str, pa.Array]:
    """Return the total of a bill, two of its parts, one of them with missing values, and an unrelated number."""
    parts = {name: RANDOM.gamma(2, scale, ROWS) for name, scale in (("fare", 9.0), ("tip", 3.0), ("tolls", 1.0))}
    total = np.round(sum(parts.values()), 2)
    columns = {"total": total, "tip": parts["tip"], "tolls": parts["tolls"], "noise": NOISE, "fare": parts["fare"]}
    return {name: pa.array(values) for name, values in columns.items()} | {
        "few": present(NOISE, RANDOM.random(ROWS) < 0.1),
        "constant": pa.array([3] * ROWS),
        "color": pa.array(WORDS),
    }


def test_total_of_which_the_label_is_a_part_is_found() -> None:
    columns = make_bill()
    label = columns.pop("fare").to_numpy()
    [leak] = find(columns, label, "regression").leaks
    assert (leak.column, leak.kind, leak.figure) == ("total", "sum", pytest.approx(1, abs=1e-4))
    assert str(leak) == (
        "column total: a weighted sum of it and tip, tolls predicts the label: share of the variance 0.9999"
    )
    # The total alone leaves a tenth of the variance, and with the tip it leaves a hundredth.
    assert find({name: columns[name] for name in ("total", "tip")}, label, "regression").leaks == ()


def test_large_integers_are_summed_exactly() -> None:
    start = 2**60 + RANDOM.integers(0, 1000, ROWS)
    length = RANDOM.integers(0, 1000, ROWS)
    columns = {"start": pa.array(start), "end": pa.array(start + length)}
    [leak] = find(columns, length.astype(float), "regression").leaks
    assert (leak.kind, leak.figure) == ("sum", pytest.approx(1, abs=1e-9))


def test_message_contains_the_figures() -> None:
    column = present(WORDS, (LABEL == 1) & (np.arange(ROWS) % 100 > 0))
    [leak] = find({"refund": column}, LABEL, "binary").leaks
    share = ((LABEL == 1) & (np.arange(ROWS) % 100 > 0)).sum() / LABEL.sum()
    assert str(leak).startswith("column refund: whether it is missing predicts the label: a value in ")
    assert f"in {share:.1%} of the rows with label 1 and in 0.0% of the others, AUC 0.99" in str(leak)
    assert str(Leak("a", "value", 0.99996, 0.998, "w")) == "column a: w"


@pytest.mark.parametrize(
    ("labels", "task", "why"),
    [
        (LABEL[:499], "binary", "499 rows of 500"),
        (np.arange(600) < 20, "binary", "20 rows with the rarer label of 50"),
        (np.zeros(600), "regression", "all labels are alike"),
        (np.linspace(0, 1, 600), "binary", "labels are not classes"),
    ],
)
def test_leakage_is_unknown_with_too_few_rows_or_labels(labels: Any, task: Task, why: str) -> None:
    result = find({"copy": pa.array(np.asarray(labels, float))}, np.asarray(labels, float), task)
    assert (result.leaks, result.unknown) == ((), why)


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "diabetes", "iris", "wine"])
def test_real_data_does_not_raise_a_false_alarm(name: str) -> None:
    data = getattr(datasets, f"load_{name}")()
    columns = {str(at): pa.array(values) for at, values in enumerate(data.data.T)}
    classes = len(np.unique(data.target))
    task: Task = "regression" if name == "diabetes" else "binary" if classes == 2 else "multiclass"
    assert find(columns, data.target.astype(float), task).leaks == ()
    if task == "multiclass":
        assert find(columns, (data.target == 0).astype(float), "binary").leaks == ()


@pytest.mark.parametrize("decimals", [0, 6], ids=["ties", "distinct"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_area_of_an_order_is_the_area_of_scikit_learn(decimals: int, missing: float) -> None:
    random = np.random.default_rng(5)
    labels = (random.random(800) < 0.3).astype(float)
    values = (labels + random.normal(size=800)).round(decimals)
    absent = random.random(800) < missing
    judge = leakage._Classes(labels, np.arange(800) % 2 == 0, binary=True)
    _, numbers, _ = leakage._read(pa.array(values, mask=absent))
    assert numbers is not None
    areas = [roc_auc_score(labels, np.where(absent, end, values)) for end in (-1e9, 1e9)]
    assert judge.measure_order(numbers) == float64_sum(800).approx(max(*areas, *(1 - area for area in areas)))
