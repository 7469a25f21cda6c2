"""The metrics of every scored table equal the metrics of scikit-learn and NumPy, over all rows and in every slice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo_scores import SCORED, Scored

from components.evaluator.config import METRICS, NUMBERED_METRICS
from tests.support.data.tolerances import Tolerance
from tests.support.runs import evaluator_runs
from tests.support.runs.evaluator_runs import Evaluated
from tests.support.servers.in_fork_server import in_child

IN_SHORT = ("equal_predictions",)
"""In `make test`; the others are extended."""
FLOAT32 = Tolerance(2e-5, 1e-6)
"""Of sums of float32 losses, which TFMA computes with TensorFlow."""
ELSEWHERE = {"quantile_loss", "interval_coverage", "interval_width", "mase", "cost"} | {
    name for name, metric in METRICS.items() if metric.tasks & {"multilabel", "survival"}
}
"""Of models that predict quantiles: tests/unit/components/evaluator/test_quantile_metrics.py; of forecasts:
test_forecast_metrics.py there; of decisions with costs: tests/contract/test_decisions.py; of the tasks
multilabel and survival: test_multilabel_metrics.py and test_survival_metrics.py there."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_SHORT else pytest.mark.extended) for name in SCORED]
)
def test_metrics_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    table = SCORED[name]()
    result = in_child(tmp_path / "log", _evaluate, tmp_path, table)
    assert isinstance(result, Evaluated)
    everything = np.ones(len(table.columns["label"]), bool)
    rows_by_slice = {"": everything}
    if table.slice_by:
        values = np.asarray(table.columns[table.slice_by], object)
        rows_by_slice |= {value: values == value for value in sorted({value for value in values if value is not None})}
    measured = {"".join(entry.slice.values()): entry for entry in result.verdict.slices}
    assert set(measured) == set(rows_by_slice)
    for value, rows in rows_by_slice.items():
        expected = table.expected(rows)
        assert measured[value].rows == rows.sum()
        assert set(measured[value].metrics) == set(expected), value
        assert measured[value].metrics == FLOAT32.approx(expected), value


def _evaluate(folder: Path, table: Scored) -> Evaluated:
    section: dict[str, Any] = {"metrics": list(table.metrics), "thresholds": {table.metrics[0]: {"min": -1e9}}}
    section |= {"slices": [table.slice_by]} if table.slice_by else {}
    section |= {"group": table.group} if table.group else {}
    weight = "weight" if "weight" in table.columns else None
    return evaluator_runs.evaluate(
        folder, section, 1.0, None, None, table.task, table.columns, weight_column=weight, classes=table.classes
    )


def test_every_metric_is_in_a_table() -> None:
    tables = [make() for make in SCORED.values()]
    used = {name.partition("_at_")[0] if "_at_" in name else name for table in tables for name in table.metrics}
    of_rows = {name for name, metric in METRICS.items() if "retrieval" not in metric.tasks}
    numbered = {name.partition("_at_")[0] for name, metric, _ in NUMBERED_METRICS if "retrieval" not in metric.tasks}
    assert used >= (of_rows | numbered) - ELSEWHERE
    assert {table.task for table in tables} == {"binary", "multiclass", "regression"}
