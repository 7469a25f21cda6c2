"""Tests for the live pages: their addresses, their entity tags, and requests that are refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from pipeline.core.run_record import RunRecord, create_run
from pipeline.inspection.report import live_pages, runs_page
from pipeline.inspection.report.live_pages import Pages, Response
from tests.support.runs.report_runs import HARM, write_run
from tests.support.runs.stored_history import History


@pytest.fixture(autouse=True)
def refresh_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the list of runs change without a pause."""
    monkeypatch.setattr(live_pages, "_PAUSE_FACTOR", 0)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path / "metadata.db", tmp_path / "logs", None)


@pytest.fixture
def active_run(tmp_path: Path) -> RunRecord:
    return create_run(tmp_path / "logs", "toy", (), ())


def read_body(response: Response) -> str:
    assert response.status == 200
    return response.body.decode()


def test_list_is_empty_without_a_store(pages: Pages):
    assert "No run yet." in read_body(pages.respond("/"))
    assert pages.respond("/run/r1/").status == 404


def test_run_is_listed_before_the_store_exists(pages: Pages, active_run: RunRecord):
    listed = read_body(pages.respond("/"))
    assert f'<a href="run/{active_run.run}/">{active_run.run}</a>' in listed
    assert "running" in listed
    assert "The pipeline is being compiled." in read_body(pages.respond(f"/run/{active_run.run}/"))
    active_run.close()


def test_page_of_a_run_changes_with_the_run(pages: Pages, active_run: RunRecord):
    path = f"/run/{active_run.run}/"
    first = pages.respond(path)
    assert pages.respond(path, first.tag).status == 304
    active_run.add_nodes({"A": (), "B": ("A",)})
    active_run.nodes["A"].state, active_run.nodes["A"].peak_memory_mb = "running", 1234.0
    active_run.save()
    second = pages.respond(path, first.tag)
    assert "Running: A." in read_body(second)
    assert "1,234 MB" in read_body(second)
    # The end of a process does not change any file.
    active_run.close()
    third = pages.respond(path, second.tag)
    assert "The run has ended: died." in read_body(third)
    assert pages.respond(path, third.tag).status == 304


def test_list_changes_with_the_runs(pages: Pages, active_run: RunRecord, tmp_path: Path):
    first = pages.respond("/")
    assert pages.respond("/", first.tag).status == 304
    other_run = create_run(tmp_path / "logs", "toy", (), ())
    second = pages.respond("/")
    assert other_run.run in read_body(second)
    assert second.tag != first.tag
    for run in (active_run, other_run):
        run.close()
    third = pages.respond("/")
    assert read_body(third).count("state-died") - read_body(second).count("state-died") == 2
    write_run(tmp_path, "r1")
    assert "r1</a>" in read_body(pages.respond("/"))


def test_dead_run_is_reported_to_every_client(pages: Pages, active_run: RunRecord):
    first = pages.respond("/")
    active_run.close()
    later_responses = [pages.respond("/"), pages.respond("/")]
    assert all("Runs" in read_body(response) for response in later_responses)
    assert pages.respond("/", first.tag).status == 200
    assert pages.respond("/", later_responses[-1].tag).status == 304


def test_invalid_records_are_not_listed(pages: Pages, tmp_path: Path):
    for name, content in (("list", "[]"), ("other", '{"state": "done"}'), ("torn", "{")):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "run.json").write_text(content)
    assert "No run yet." in read_body(pages.respond("/"))


def test_list_is_not_recreated_within_the_pause(pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_pages, "_PAUSE_FACTOR", 1e9)
    first = pages.respond("/")
    create_run(tmp_path / "logs", "toy", (), ()).close()
    assert pages.respond("/") == first
    assert pages.respond("/", first.tag).status == 304


def test_report_is_complete_when_the_run_has_ended(pages: Pages, active_run: RunRecord, tmp_path: Path):
    active_run.add_nodes({"Trainer": ()})
    active_run.save()
    before = pages.respond(f"/run/{active_run.run}/")
    write_run(tmp_path, active_run.run)
    assert pages.respond(f"/run/{active_run.run}/", before.tag).status == 304, "the store alone changes nothing"
    active_run.state = "done"
    active_run.save()
    active_run.close()
    page = read_body(pages.respond(f"/run/{active_run.run}/", before.tag))
    assert "at least 0.6" in page
    assert page.count("<script>") == 1
    assert not list(tmp_path.glob("logs/*/report.html")), "it is not written down"


def test_state_of_a_stock_run_follows_its_executions(history: History):
    pages = Pages(history.location, history.logs, None)
    history.writer.execution("r4", "Trainer", "RUNNING", inputs={"examples": history.artifacts["rows 3"]})
    running = pages.respond("/run/r4/")
    assert "Running: Trainer." in read_body(running)
    assert pages.respond("/run/r4/", running.tag).status == 304
    ended = pages.respond("/run/r3/")
    assert "Evaluation" in read_body(ended)
    assert pages.respond("/run/r3/", ended.tag).status == 304


def test_runs_of_another_pipeline_are_not_listed(history: History):
    create_run(history.logs, "toy", (), ()).close()
    pages = Pages(history.location, history.logs, "other")
    assert "No run yet." in read_body(pages.respond("/"))
    assert pages.respond("/run/r1/").status == 404


def test_long_list_omits_old_runs_that_are_not_in_the_store(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs_page, "MOST", 2)
    for run, started in (("old", 1.0), ("new", time.time() + 60)):
        history.write_record(
            run, pipeline="toy", state="failed", started=started, updated=started + 5, nodes={}, error=None
        )
    listed = read_body(Pages(history.location, history.logs, None).respond("/"))
    assert "run/new/" in listed
    assert "run/old/" not in listed
    assert "Older runs are left out" in listed


def test_run_that_failed_before_any_node_shows_its_error(history: History):
    error = {"headline": "the module does not compile", "details": [], "remedy": "fix it", "exit_code": 2}
    history.write_record("r9", pipeline="toy", state="failed", started=1.0, updated=6.0, nodes={}, error=error)
    page = read_body(Pages(history.location, history.logs, None).respond("/run/r9/"))
    assert "the module does not compile" in page
    assert "The run has ended: failed." in page


def test_store_error_is_reported_and_runs_are_still_listed(pages: Pages, active_run: RunRecord, tmp_path: Path):
    (tmp_path / "metadata.db").write_text("no store")
    listed = read_body(pages.respond("/"))
    assert "cannot be opened" in listed
    assert active_run.run in listed
    assert "cannot be opened" in pages.respond("/run/r1/").body.decode()
    assert pages.respond("/run/r1/").status == 503
    active_run.close()


def test_only_logs_of_nodes_are_served(pages: Pages, active_run: RunRecord, tmp_path: Path):
    active_run.log("A").write_text("said <b>\n")
    (tmp_path / "secret.log").write_text("secret")
    (tmp_path / "logs" / "stray.log").write_text("secret")
    (active_run.folder / "link.log").symlink_to(tmp_path / "secret.log")
    (active_run.folder / "folder.log").mkdir()
    (active_run.folder / "other.txt").write_text("secret")
    run_path = f"/run/{active_run.run}"
    log = pages.respond(f"{run_path}/A.log")
    assert (log.media_type, log.body) == (live_pages.TEXT, b"said <b>\n")
    for path in (
        *("link.log", "folder.log", "other.txt", "run.json", "lock", "none.log", "../stray.log", "..%2Fstray.log"),
        *("%2e%2e/stray.log", "..%2f..%2fsecret.log", "A.log%00", "A.log/", "%2Fetc%2Fpasswd"),
    ):
        assert pages.respond(f"{run_path}/{path}").status == 404, path
    for path in (
        "",
        "//",
        "/run",
        "/run/",
        "/run//",
        "/run/../a.log",
        "/run/%2e%2e/secret.log",
        "/run/%2e/stray.log",
    ):
        assert pages.respond(path).status == 404, path
    active_run.close()


def test_long_log_is_served_from_its_end(pages: Pages, active_run: RunRecord, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_pages, "_LOG_BYTES", 4)
    active_run.log("A").write_text("0123456789")
    assert pages.respond(f"/run/{active_run.run}/A.log").body == b"6789"
    active_run.close()


def test_hostile_names_are_escaped(tmp_path: Path, pages: Pages):
    outside = tmp_path / "outside"
    outside.mkdir()
    record = {"run": "x", "pipeline": "secret", "state": "done", "started": 1, "updated": 2, "nodes": {}}
    (outside / "run.json").write_text(json.dumps(record))
    writer = write_run(tmp_path, "r1", harm=HARM)
    for run in (HARM, "..", "../outside", "/etc", "%2e%2e"):
        writer.execution(run, "Trainer")
    paths = ["/", *(f"/run/{quote(run, safe='')}/" for run in (HARM, "r1", "../outside"))]
    for page in (read_body(pages.respond(path)) for path in paths):
        assert page.count("<script>") == 1
        assert "<img src=x" not in page
        assert "secret" not in page
    listed = read_body(pages.respond("/"))
    assert 'href="run/..%2Foutside/"' in listed
    assert 'href="run/%252e%252e/"' in listed
