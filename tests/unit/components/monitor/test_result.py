"""Tests of Monitor's result: its JSON, and the entries that have drifted."""

from __future__ import annotations

import json

from components.monitor.result import Monitoring
from tests.support.runs.report_runs import monitoring


def test_result_is_restored_from_json() -> None:
    assert Monitoring.from_dict(json.loads(json.dumps(monitoring().to_dict()))) == monitoring()
    assert [judgement.columns for judgement in monitoring().brief().judgements] == [(), ()]


def test_drifted_columns_and_exceeded_metrics_are_found_by_version() -> None:
    assert monitoring().find_drift() == {"company": 0.5, "auc": 0.625}
    assert monitoring().find_drift(17) == {"company": 0.5, "auc": 0.625}
    assert monitoring().find_drift(18) == {}
