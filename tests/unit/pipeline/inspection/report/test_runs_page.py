"""Tests for the page with the list of runs: its rows, charts, links to existing reports, and maximum length."""

from __future__ import annotations

from pathlib import Path

from pipeline.inspection.report import runs_page
from pipeline.inspection.report.write import NAME
from pipeline.inspection.run_history import RunListEntry
from tests.support.runs.report_runs import HARM


def make_entry(run: str, started: float = 1.0, **metrics: float) -> RunListEntry:
    return RunListEntry(run, "toy", "done", started, 2.0, verdict="blessed", metrics=metrics)


def test_runs_are_listed_with_links_to_existing_reports(tmp_path: Path):
    logs = tmp_path / "out" / "toy" / "logs"
    (logs / "r 2").mkdir(parents=True)
    (logs / "r 2" / NAME).write_text("")
    page = runs_page.render(
        [make_entry("r 2", 2.0, auc=0.75), make_entry("r1", 1.0, auc=0.5)],
        runs_page.file_links(logs, tmp_path / "site"),
    )
    assert '<a href="../out/toy/logs/r%202/report.html">r 2</a>' in page
    assert page.count("<a href") == 1
    assert "toy: from 0.5000 to 0.7500" in page


def test_page_says_that_old_runs_are_left_out(tmp_path: Path):
    runs = [make_entry(f"r{number}", float(-number), auc=0.5) for number in range(runs_page.MOST + 1)]
    page = runs_page.render(runs, runs_page.file_links(tmp_path, tmp_path))
    assert page.count("<tr") == runs_page.MOST + 1
    assert "Older runs are left out" in page
    assert "Older runs are left out" not in runs_page.render(runs[1:], runs_page.file_links(tmp_path, tmp_path))


def test_hostile_names_are_escaped(tmp_path: Path):
    for run in (HARM, "..", "", "../../etc"):
        page = runs_page.render(
            [RunListEntry(run, HARM, HARM, 1.0, 2.0, metrics={HARM: 0.5}, version=HARM)],
            runs_page.file_links(tmp_path, tmp_path),
        )
        assert "<script" not in page
        assert "<img" not in page
        assert "<a href" not in page


def test_page_is_rendered_without_runs(tmp_path: Path):
    assert "No run yet." in runs_page.render([], runs_page.file_links(tmp_path, tmp_path))
