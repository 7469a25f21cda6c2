"""Tests of the figures that the benchmark of histories computes from the AUCs of several logs."""

from __future__ import annotations

from benchmarks import sessions


def test_differences_are_computed_per_log_and_have_a_standard_error() -> None:
    areas_by_log = [{"best": 0.8, "din": 0.75, "dcn_v2": 0.73}, {"best": 0.9, "din": 0.83, "dcn_v2": 0.79}]
    facts = sessions.facts(areas_by_log, 1000)
    assert facts["din: AUC"] == "0.7900 (standard error 0.0400)"
    assert facts["din: behind the best"] == "0.0600 (standard error 0.0100)"
    assert facts["din above dcn_v2"] == "0.0300 (standard error 0.0100)"
    assert "din above din" not in facts
