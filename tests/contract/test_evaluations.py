"""What every evaluation gives: the numbers are right, the verdict is in a file, and the blessing is as TFX's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import evaluating
import numpy as np
import pytest
from children import in_child
from evaluating import Evaluated
from sklearn import metrics

pytestmark = [pytest.mark.both_lines, pytest.mark.slow]

SECTION = {
    "metrics": ["auc", "binary_accuracy", "calibration", "expected_calibration_error"],
    "thresholds": {"auc": {"min": 0.7, "worse_by": 0.05}},
    "slice_thresholds": {"group": {"auc": {"min": 0.6}}, "place = 1": {"binary_accuracy": {"min": 0.9}}},
    "fairness": {"column": "group", "at": 0.4, "max_gap": {"positive_rate": 0.01}},
}
WEIGHT, BEFORE = 0.9, 0.5


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    """A model beside an earlier one, blessed by force: its groups are too far apart."""
    return run(tmp_path_factory.mktemp("compared"), SECTION, BEFORE, "they really are")


def run(folder: Path, section: dict[str, Any], before: float | None = None, force: str | None = None) -> Evaluated:
    found = in_child(folder / "log", evaluating.evaluate, folder, section, WEIGHT, before, force)
    assert isinstance(found, Evaluated)
    return found


def expected(rows: Any, weight: float, rates: bool) -> dict[str, float]:
    """The metrics of some of the rows, counted without TFMA; rates are those of all rows and of groups only."""
    table = evaluating.columns()
    label, probability = table["label"][rows], weight * table["score"][rows].astype(float)
    positive, bins = probability > 0.4, np.minimum((probability * 10).astype(int), 9)
    off = [abs((probability - label)[bins == each].sum()) for each in range(10)]
    told = {
        "binary_accuracy": float(((probability > 0.5) == label).mean()),
        "expected_calibration_error": sum(off) / len(label),
    }
    if rates:
        told["positive_rate"] = float(positive.mean())
        told["false_positive_rate"] = float(positive[label == 0].mean())
    if label.any():
        told["auc"] = float(metrics.roc_auc_score(label, probability))
        told["calibration"] = float(probability.sum() / label.sum())
    if rates and label.any():
        told["false_negative_rate"] = float(1 - positive[label == 1].mean())
    return told


def test_the_numbers_are_right_for_both_models_and_every_slice(compared: Evaluated) -> None:
    group, place = (evaluating.columns()[name] for name in ("group", "place"))
    wanted = {
        (): np.full(evaluating.ROWS, True),
        **{(("group", each),): group == each for each in "abc"},
        (("place", "1"),): place == 1,
    }
    assert {tuple(each.slice.items()) for each in compared.verdict.slices} == set(wanted)
    assert not compared.verdict.slices[0].slice
    for each in compared.verdict.slices:
        rows = wanted[tuple(each.slice.items())]
        assert each.rows == rows.sum()
        # The area under the curve is taken over thresholds, not over all rows.
        rates = "place" not in each.slice
        assert each.metrics == pytest.approx(expected(rows, WEIGHT, rates), abs=1e-3)
        assert each.baseline == pytest.approx(expected(rows, BEFORE, rates), abs=1e-3)


def test_the_verdict_names_every_bound(compared: Evaluated) -> None:
    checks = [(check.metric, *check.slice.values(), check.passed, check.judged) for check in compared.verdict.checks]
    assert checks == [
        ("auc", True, True),
        ("auc", True, True),
        ("auc", "a", True, True),
        ("auc", "b", True, True),
        ("auc", "c", True, False),
        ("binary_accuracy", "1", True, False),
        ("gap of positive_rate", "any two", False, True),
    ]
    why = [check.why for check in compared.verdict.checks]
    assert why[4:6] == ["not judged: all labels are alike", "not judged: 10 rows of 50"]


def test_a_forced_blessing_is_one_and_says_so(compared: Evaluated) -> None:
    assert (compared.verdict.blessed, compared.verdict.forced) == (True, "they really are")
    assert compared.marks == ["BLESSED"]
    assert compared.blessing["blessed"] == 1
    assert compared.blessing["forced"] == "they really are"


def test_a_blessing_names_both_models_as_tfx_does(compared: Evaluated) -> None:
    assert (compared.blessing["current_model_id"], compared.blessing["baseline_model_id"]) == (7, 5)
    assert Path(compared.blessing["current_model"]).name == "model"
    assert Path(compared.blessing["baseline_model"]).name == "baseline"


def test_the_first_rows_are_recorded_with_the_models_answers(compared: Evaluated) -> None:
    assert compared.asked == evaluating.columns()["score"][:5].tolist()
    assert compared.answered == pytest.approx([WEIGHT * score for score in compared.asked])


def test_without_force_a_model_that_misses_a_bound_is_not_blessed(tmp_path: Path) -> None:
    found = run(tmp_path, {"metrics": ["auc"], "thresholds": {"auc": {"min": 0.99, "worse_by": 0.1}}})
    assert [(check.passed, check.why) for check in found.verdict.checks] == [
        (False, None),
        (True, "no earlier blessed model"),
    ]
    assert (found.verdict.blessed, found.verdict.forced, found.marks) == (False, None, ["NOT_BLESSED"])
    assert (found.blessing["blessed"], found.blessing["forced"], found.blessing["baseline_model_id"]) == (0, "", 0)
    assert all(not each.baseline for each in found.verdict.slices)
