"""Tests for the files of reports and for the commands that write them, which import only light modules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.base.errors import InputError, MachineError
from pipeline.inspection.report import write
from tests.support.runs.command import light_command
from tests.support.runs.report_runs import the_run, write_run


@pytest.mark.parametrize("run", ["..", ".", "", "../../etc", "/etc", "a/b", "a\0b"])
def test_run_id_that_leads_outside_the_logs_is_rejected(tmp_path: Path, run: str):
    with pytest.raises(InputError, match="that can be the name of a folder"):
        write.report_path(tmp_path, run)


def test_file_that_cannot_be_written_is_reported(tmp_path: Path):
    write_run(tmp_path)
    (tmp_path / "report.html").mkdir()
    store, run = the_run(tmp_path)
    with pytest.raises(MachineError, match=r"report\.html cannot be written"):
        write.write_report(store, tmp_path / "logs", run, tmp_path / "report.html")


def test_verb_writes_the_latest_runs_report_and_its_model_card(tmp_path: Path):
    write_run(tmp_path)
    process = light_command("runs", "report", "--store", str(tmp_path / "metadata.db"), "--model-card")
    folder = tmp_path / "logs" / "r1"
    assert (process.exit_code, process.err) == (0, "")
    assert [Path(line).name for line in process.out.splitlines()] == ["report.html", "model-card.md", "model-card.json"]
    assert sorted(file.name for file in folder.iterdir()) == ["model-card.json", "model-card.md", "report.html"]
    assert json.loads((folder / "model-card.json").read_text())["model_details"]["name"] == "toy"


def test_report_is_written_to_the_given_path(tmp_path: Path):
    write_run(tmp_path)
    page = tmp_path / "elsewhere" / "page.html"
    process = light_command("runs", "report", "r1", "--store", str(tmp_path / "metadata.db"), "--into", str(page))
    assert (process.exit_code, process.out) == (0, f"{page}\n")
    assert page.read_text().startswith("<!doctype html>")


def test_list_of_runs_links_to_their_reports(tmp_path: Path):
    write_run(tmp_path)
    store = ("--store", str(tmp_path / "metadata.db"))
    assert light_command("runs", "report", *store).exit_code == 0
    process = light_command("runs", "site", *store)
    assert (process.exit_code, process.err) == (0, "")
    assert '<a href="r1/report.html">r1</a>' in (tmp_path / "logs" / "index.html").read_text()
