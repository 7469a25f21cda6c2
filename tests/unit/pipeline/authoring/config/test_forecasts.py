"""Configs of forecasts: fields that cannot be combined, and the plans of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from components.features.plan import RowKey
from pipeline.authoring.config import load
from pipeline.authoring.plans import evaluation_plan, training_plan
from pipeline.authoring.preflight import check_data


def load_config(folder: Path, *assignments: str, **sections: Any) -> Any:
    (folder / "sales.csv").write_text("store,date,sales,promotion\nx,2024-01-01,3,0\n")
    windows = {"by": "store", "time": "date", "lags": [1], "horizon": 2, "known": "promotion"}
    config = {
        "data": {"path": str(folder / "sales.csv"), "label": "sales", "task": "regression", "windows": windows},
        "features": {"columns": {"sales_lag_1": "z_score", "horizon": "z_score", "promotion": "vocab"}},
        "evaluation": {"slices": ["horizon"], "thresholds": {"mase": {"max": 1}}},
        **sections,
    }
    path = folder / "sales.yaml"
    path.write_text(yaml.safe_dump(config))
    return load(str(path), assignments)


def test_plans_know_the_forecasts(tmp_path: Path) -> None:
    loaded = load_config(tmp_path)
    check_data(loaded)
    config = loaded.config
    assert training_plan(config).features.row_key == RowKey(by="origin", columns=("origin", "date"))
    plan = evaluation_plan(config)
    assert plan.forecasts
    assert plan.past_columns == config.data.ingested_windows.added
    assert "sales_lag_1" in plan.past_columns
    assert "promotion" not in plan.past_columns, "a column that is known in advance may leak"
    assert plan.evaluation.metrics_for(plan.task, plan.added_metrics)[:2] == ("mase", "wape")
    assert config.data_of(("other.csv",)).windows is None
    history = config.data_of(("other.csv",), is_predicted=True)
    assert (history.windows, history.split) == (config.data.windows, config.data.split)
    assert not evaluation_plan(
        load_config(tmp_path, "data.windows=null", "evaluation.thresholds={wape: {max: 1}}").config
    ).forecasts


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("data.windows=null", "mase requires an evaluation of forecasts; set data.windows"),
        ("runtime.vectorised=false", "requires an evaluation in record batches"),
        ("data.split={by: hash, train: 2, eval: 1}", "expected by: time with the column 'date'"),
        ("data.windows.horizon=0", "expected at least 1 step, received 0"),
    ],
)
def test_fields_that_cannot_be_combined_are_refused(tmp_path: Path, assignment: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        load_config(tmp_path, assignment)
    assert message in str(raised.value)


def test_columns_that_windows_add_are_known(tmp_path: Path) -> None:
    loaded = load_config(tmp_path, "features.columns.sales_lag_2=z_score")
    with pytest.raises(InputError, match="the data has no column 'sales_lag_2'; did you mean 'sales_lag_1'"):
        check_data(loaded)
