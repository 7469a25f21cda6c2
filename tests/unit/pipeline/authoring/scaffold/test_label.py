"""Tests for labels and learning tasks that `init` derives from values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance

from components.base.config_section import Task
from components.ingest import readers
from pipeline.authoring.config import load
from pipeline.authoring.config.cross_checks import check_columns
from pipeline.authoring.scaffold import Draft, draft
from pipeline.authoring.scaffold.kind_choice import Fit
from tests.support.data.scaffold_tables import ROWS, random, write_rows


def draft_with_label(values: Any, folder: Path, task: Task | None = None) -> Draft:
    return draft([write_rows("labeled", {"a": random().normal(size=len(values)), "y": values}, folder)], "y", task)


def test_integers_with_few_rows_per_value_are_a_regression(tmp_path: Path) -> None:
    assert draft_with_label(random().integers(0, 300, ROWS), tmp_path).task.task == "regression"
    assert draft_with_label([row % 30 for row in range(ROWS)], tmp_path).task.task == "multiclass"


def repeat_integers(*frequencies: int) -> Any:
    return random().permutation(np.repeat(np.arange(len(frequencies)), frequencies))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (random().poisson(1.5, 2_000), ("regression", "poisson")),
        (repeat_integers(4141, 782, 174, 30, 24, 9, 12, 12, 5, 1), ("regression", "poisson")),
        (np.clip(random().normal(11, 3, 2_000).round(), 0, 20).astype(int), ("regression", None)),
        # Few rows per integer: miles per gallon of 93 cars.
        (random().normal(22, 5, 93).round().astype(int), ("regression", None)),
        (repeat_integers(*[180] * 10), ("multiclass", None)),
        (repeat_integers(153, 70, 135, 62, 70, 40, 150), ("multiclass", None)),
        # The frequencies of the cover types of a forest.
        (repeat_integers(2118, 2832, 357, 27, 95, 174, 205), ("multiclass", None)),
        (repeat_integers(50, 300, 20), ("multiclass", None)),
    ],
)
def test_integers_whose_frequencies_rise_and_fall_are_a_quantity(
    values: Any, expected: tuple[Task, str | None], tmp_path: Path
) -> None:
    drafted = draft_with_label(values, tmp_path)
    config = tmp_path / "drafted.yaml"
    config.write_text(drafted.config("schema.pbtxt"))
    loaded = load(str(config)).config
    assert (loaded.data.task, loaded.model.loss) == expected
    assert bool(drafted.task.notes) == (expected[0] == "regression")
    assert draft_with_label(values, tmp_path, "multiclass").task.task == "multiclass"


@pytest.mark.parametrize(
    ("frequencies", "is_quantity"),
    [
        # Numbers of affairs per year, where 7 stands for every month or week and 12 for every day.
        ({0: 451, 1: 34, 2: 17, 3: 19, 7: 42, 12: 38}, True),
        ({0: 306, 2: 11, 5: 22, 10: 2, 20: 4}, True),
        # Visits of a doctor, and children: large numbers are rare, so some do not occur.
        ({0: 100, 1: 47, 2: 30, 3: 7, 4: 4, 6: 1}, True),
        ({0: 2784, 1: 485, 2: 100, 3: 12, 6: 1}, True),
        # Cigarettes per day.
        ({0: 500, 1: 3, 2: 4, 4: 9, 6: 6, 8: 5, 10: 55, 15: 19, 20: 62, 30: 5}, True),
        # Codes: tens, one that does not occur, a missing value, treatments, marital states, districts.
        ({0: 90, 10: 80, 20: 95, 30: 70, 40: 85}, False),
        ({10: 90, 20: 80, 30: 95}, False),
        ({1: 90, 2: 80, 3: 95}, False),
        ({0: 90, 1: 80, 2: 95, 3: 70, 5: 85}, False),
        ({0: 90, 1: 80, 2: 95, 4: 70, 6: 85}, False),
        ({0: 90, 1: 80, 2: 95, 3: 70, 4: 60, 9: 40}, False),
        ({0: 18, 2: 18, 20: 18, 22: 18, 111: 72, 113: 36, 131: 36, 200: 18, 202: 18, 220: 18, 311: 36}, False),
        ({2: 1279, 3: 97, 4: 96, 5: 99, 6: 57, 8: 12}, False),
        ({0: 1078, 1: 458, 3: 193, 5: 34, 6: 31, 7: 40, 8: 94, 9: 97}, False),
    ],
)
def test_integers_with_the_gaps_of_counts_are_a_quantity(
    frequencies: dict[int, int], is_quantity: bool, tmp_path: Path
) -> None:
    values = random().permutation(np.repeat(list(frequencies), list(frequencies.values())))
    task = draft_with_label(values, tmp_path).task
    assert (task.task, task.loss) == (("regression", "poisson") if is_quantity else ("multiclass", None))
    rows = {"a": random().normal(size=len(values)), "risk_class": values}
    assert draft([write_rows("named", rows, tmp_path)], "risk_class").task.task == "multiclass"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("risk_class", "multiclass"),
        ("score_type", "multiclass"),
        ("model_year", "regression"),
        ("Score", "regression"),
        ("YearSold", "regression"),
        ("years_at_company", "regression"),
        ("scorecard", "multiclass"),
    ],
)
def test_name_of_whole_numbers_decides_their_task(name: str, task: Task, tmp_path: Path) -> None:
    rows = {"a": random().normal(size=2_000), name: random().integers(2001, 2009, 2_000)}
    assert draft([write_rows("named", rows, tmp_path)], name).task.task == task
    rows[name] = random().poisson(1.5, 2_000)
    assert draft([write_rows("counts", rows, tmp_path)], name).task.task == (
        "multiclass" if "_class" in name or "_type" in name else "regression"
    )
    rows[name] = random().integers(0, 4, 2_000)
    assert draft([write_rows("few", rows, tmp_path)], name).task.task == "multiclass"


def test_bound_of_counts_is_between_the_deviances_of_the_mean_and_of_the_model(tmp_path: Path) -> None:
    values = random().poisson(1.5, 2_000)
    drafted = draft_with_label(values, tmp_path)
    constant = mean_poisson_deviance(values, np.full(len(values), values.mean()))
    [bound] = drafted.defaults.thresholds.values()
    assert bound["max"] == pytest.approx(constant, rel=0.01, abs=1e-6)
    # Half the deviance of each row, in units of the mean.
    fitted = Fit("gbt", np.full(400, constant / 4 / values.mean(), np.float32), {})
    assert drafted.with_bounds(fitted).defaults.thresholds == {
        "poisson_deviance": {"max": pytest.approx(0.75 * constant, rel=0.01, abs=1e-6), "worse_by_fraction": 0.02}
    }


def test_option_decides_the_task_of_integers(tmp_path: Path) -> None:
    values = [row % 50 for row in range(ROWS)]
    assert draft_with_label(values, tmp_path, "regression").task.task == "regression"
    assert len(draft_with_label(values, tmp_path, "multiclass").task.classes) == 50


@pytest.mark.parametrize(
    ("header", "label", "written_label"),
    [
        ("class", "class", "class == 'yes'"),
        ("class", "class == 'yes'", "class == 'yes'"),
        ("is it spam?", "is it spam?", "is_it_spam == 'yes'"),
        ("Is.Größe (cm)", "Is.Größe (cm)", "Is_Grosse_cm == 'yes'"),
        ("ラベル", "`ラベル` == 'yes'", "`ラベル` == 'yes'"),
        ("not", "not", "`not` == 'yes'"),
    ],
)
def test_label_with_any_name_results_in_a_valid_config(
    header: str, label: str, written_label: str, tmp_path: Path
) -> None:
    path = tmp_path / "named.csv"
    path.write_text(f"lambda,{header}\n" + "".join(f"{row % 7},{'yes' if row % 3 else 'no'}\n" for row in range(99)))
    config = tmp_path / "drafted.yaml"
    config.write_text(draft([str(path)], label).config("schema.pbtxt"))
    loaded = load(str(config))
    assert loaded.config.data.label == written_label
    assert not check_columns(loaded.config, readers.columns(loaded.config.data) or [])
    assert list(loaded.config.features.columns) == ["lambda"]


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [
        (random(1).lognormal(10, 1, ROWS), True),
        (random(1).normal(100, 1, ROWS), False),
        # A loss for positive numbers does not fit.
        (random(1).lognormal(10, 1, ROWS) - 30_000, False),
    ],
)
def test_another_loss_is_named_for_a_positive_label_with_a_long_tail(
    values: Any, is_noted: bool, tmp_path: Path
) -> None:
    drafted = draft_with_label(values, tmp_path)
    config = tmp_path / "drafted.yaml"
    config.write_text(drafted.config("schema.pbtxt"))
    assert ("model.loss: poisson" in config.read_text()) == is_noted
    assert load(str(config), ["model.loss=poisson"]).config.model.loss == "poisson"
