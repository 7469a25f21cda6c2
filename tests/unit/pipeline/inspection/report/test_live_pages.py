"""The pages as they are now: what is at which address, when one is another than before, and what leads nowhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from report_runs import HARM, write_run
from stored_history import History

from pipeline.core.run_record import RunRecord, create_run
from pipeline.inspection.report import live_pages, runs_page
from pipeline.inspection.report.live_pages import Pages, Response


@pytest.fixture(autouse=True)
def refreshed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the list is rebuilt on every change."""
    monkeypatch.setattr(live_pages, "_PAUSE_FACTOR", 0)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path / "metadata.db", tmp_path / "logs", None)


@pytest.fixture
def going(tmp_path: Path) -> RunRecord:
    return create_run(tmp_path / "logs", "toy", (), ())


def text(answer: Response) -> str:
    assert answer.status == 200
    return answer.body.decode()


def test_without_a_store_the_list_waits(pages: Pages):
    assert "No run yet." in text(pages.respond("/"))
    assert pages.respond("/run/r1/").status == 404


def test_run_is_there_before_any_store_is(pages: Pages, going: RunRecord):
    listed = text(pages.respond("/"))
    assert f'<a href="run/{going.run}/">{going.run}</a>' in listed
    assert "running" in listed
    assert "The pipeline is being compiled." in text(pages.respond(f"/run/{going.run}/"))
    going.close()


def test_page_is_another_one_as_soon_as_its_run_is(pages: Pages, going: RunRecord):
    path = f"/run/{going.run}/"
    first = pages.respond(path)
    assert pages.respond(path, first.tag).status == 304
    going.add_nodes({"A": (), "B": ("A",)})
    going.nodes["A"].state, going.nodes["A"].peak_memory_mb = "running", 1234.0
    going.save()
    second = pages.respond(path, first.tag)
    assert "Running: A." in text(second)
    assert "1,234 MB" in text(second)
    # Nobody writes down that a process has gone.
    going.close()
    third = pages.respond(path, second.tag)
    assert "The run has ended: died." in text(third)
    assert pages.respond(path, third.tag).status == 304


def test_list_is_another_one_as_soon_as_a_run_is(pages: Pages, going: RunRecord, tmp_path: Path):
    first = pages.respond("/")
    assert pages.respond("/", first.tag).status == 304
    other = create_run(tmp_path / "logs", "toy", (), ())
    second = pages.respond("/")
    assert other.run in text(second)
    assert second.tag != first.tag
    for run in (going, other):
        run.close()
    third = pages.respond("/")
    assert text(third).count("state-died") - text(second).count("state-died") == 2
    write_run(tmp_path, "r1")
    assert "r1</a>" in text(pages.respond("/"))


def test_dead_run_is_reported_to_every_client(pages: Pages, going: RunRecord):
    first = pages.respond("/")
    going.close()
    others = [pages.respond("/"), pages.respond("/")]
    assert all("Runs" in text(each) for each in others)
    assert pages.respond("/", first.tag).status == 200
    assert pages.respond("/", others[-1].tag).status == 304


def test_record_that_is_none_is_no_run(pages: Pages, tmp_path: Path):
    for name, content in (("list", "[]"), ("other", '{"state": "done"}'), ("torn", "{")):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "run.json").write_text(content)
    assert "No run yet." in text(pages.respond("/"))


def test_list_is_not_made_more_often_than_it_can_be_afforded(
    pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(live_pages, "_PAUSE_FACTOR", 1e9)
    first = pages.respond("/")
    create_run(tmp_path / "logs", "toy", (), ()).close()
    assert pages.respond("/") == first
    assert pages.respond("/", first.tag).status == 304


def test_with_its_end_a_run_has_its_whole_report(pages: Pages, going: RunRecord, tmp_path: Path):
    going.add_nodes({"Trainer": ()})
    going.save()
    before = pages.respond(f"/run/{going.run}/")
    write_run(tmp_path, going.run)
    assert pages.respond(f"/run/{going.run}/", before.tag).status == 304, "the store alone changes nothing"
    going.state = "done"
    going.save()
    going.close()
    page = text(pages.respond(f"/run/{going.run}/", before.tag))
    assert "at least 0.6" in page
    assert page.count("<script>") == 1
    assert not list(tmp_path.glob("logs/*/report.html")), "it is not written down"


def test_state_of_a_stock_run_follows_its_executions(history: History):
    pages = Pages(history.location, history.logs, None)
    history.writer.execution("r4", "Trainer", "RUNNING", inputs={"examples": history.artifacts["rows 3"]})
    going = pages.respond("/run/r4/")
    assert "Running: Trainer." in text(going)
    assert pages.respond("/run/r4/", going.tag).status == 304
    ended = pages.respond("/run/r3/")
    assert "Evaluation" in text(ended)
    assert pages.respond("/run/r3/", ended.tag).status == 304


def test_runs_of_another_pipeline_are_not_listed(history: History):
    create_run(history.logs, "toy", (), ()).close()
    pages = Pages(history.location, history.logs, "other")
    assert "No run yet." in text(pages.respond("/"))
    assert pages.respond("/run/r1/").status == 404


def test_long_list_omits_old_runs_that_are_not_in_the_store(history: History, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs_page, "MOST", 2)
    for run, started in (("old", 1.0), ("new", time.time() + 60)):
        history.write_record(
            run, pipeline="toy", state="failed", started=started, updated=started + 5, nodes={}, error=None
        )
    listed = text(Pages(history.location, history.logs, None).respond("/"))
    assert "run/new/" in listed
    assert "run/old/" not in listed
    assert "Older runs are left out" in listed


def test_run_that_failed_before_any_node_shows_its_error(history: History):
    error = {"headline": "the module does not compile", "details": [], "remedy": "fix it", "exit_code": 2}
    history.write_record("r9", pipeline="toy", state="failed", started=1.0, updated=6.0, nodes={}, error=error)
    page = text(Pages(history.location, history.logs, None).respond("/run/r9/"))
    assert "the module does not compile" in page
    assert "The run has ended: failed." in page


def test_store_error_is_reported_and_runs_are_still_listed(pages: Pages, going: RunRecord, tmp_path: Path):
    (tmp_path / "metadata.db").write_text("no store")
    listed = text(pages.respond("/"))
    assert "cannot be opened" in listed
    assert going.run in listed
    assert "cannot be opened" in pages.respond("/run/r1/").body.decode()
    assert pages.respond("/run/r1/").status == 503
    going.close()


def test_logs_are_there_and_nothing_else_of_the_disk(pages: Pages, going: RunRecord, tmp_path: Path):
    going.log("A").write_text("said <b>\n")
    (tmp_path / "secret.log").write_text("secret")
    (tmp_path / "logs" / "stray.log").write_text("secret")
    (going.folder / "link.log").symlink_to(tmp_path / "secret.log")
    (going.folder / "folder.log").mkdir()
    (going.folder / "other.txt").write_text("secret")
    here = f"/run/{going.run}"
    log = pages.respond(f"{here}/A.log")
    assert (log.media_type, log.body) == (live_pages.TEXT, b"said <b>\n")
    for path in (
        *("link.log", "folder.log", "other.txt", "run.json", "lock", "none.log", "../stray.log", "..%2Fstray.log"),
        *("%2e%2e/stray.log", "..%2f..%2fsecret.log", "A.log%00", "A.log/", "%2Fetc%2Fpasswd"),
    ):
        assert pages.respond(f"{here}/{path}").status == 404, path
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
    going.close()


def test_long_log_is_served_from_its_end(pages: Pages, going: RunRecord, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live_pages, "_LOG_BYTES", 4)
    going.log("A").write_text("0123456789")
    assert pages.respond(f"/run/{going.run}/A.log").body == b"6789"
    going.close()


def test_names_that_mean_harm_stay_names(tmp_path: Path, pages: Pages):
    outside = tmp_path / "outside"
    outside.mkdir()
    record = {"run": "x", "pipeline": "secret", "state": "done", "started": 1, "updated": 2, "nodes": {}}
    (outside / "run.json").write_text(json.dumps(record))
    writer = write_run(tmp_path, "r1", harm=HARM)
    for run in (HARM, "..", "../outside", "/etc", "%2e%2e"):
        writer.execution(run, "Trainer")
    paths = ["/", *(f"/run/{quote(run, safe='')}/" for run in (HARM, "r1", "../outside"))]
    for page in (text(pages.respond(path)) for path in paths):
        assert page.count("<script>") == 1
        assert "<img src=x" not in page
        assert "secret" not in page
    listed = text(pages.respond("/"))
    assert 'href="run/..%2Foutside/"' in listed
    assert 'href="run/%252e%252e/"' in listed
