"""The pages on runs in a real browser: no request, no error, and everything is reachable by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.inspection import run_history
from pipeline.inspection.report import runs_page, write
from tests.support.runs.report_runs import HARM, the_run, write_run
from tests.support.servers.browser import WIDTHS, keep, needs_browser, open_watched_tab, sync_api, violations

pytestmark = needs_browser


@pytest.fixture(scope="module", params=["plain", "harmful", "regression", "all runs"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write reports of a binary task, of many classes with hostile names and of a regression, and the list of runs."""
    task = {"harmful": "multiclass", "regression": "regression"}.get(request.param, "binary")
    folder = tmp_path_factory.mktemp("pages")
    writer = write_run(folder)
    write_run(folder, "r2", writer, harm=HARM if request.param == "harmful" else "", fares=3.0, task=task, classes=20)
    store, run = the_run(folder, "r2")
    logs = folder / "logs"
    for number, run_id in enumerate(("r1", "r2")):
        record = {"pipeline": "toy", "state": "done", "started": 1e9 * (number + 1), "updated": 1e9 * (number + 1) + 75}
        (logs / run_id).mkdir(parents=True)
        (logs / run_id / "run.json").write_text(json.dumps({**record, "metrics": {"auc": 0.75 + number / 10}}))
    write.write_report(store, logs, run, logs / "r2" / write.NAME)
    runs = run_history.list_runs(store, logs)
    write.write_text(logs / "index.html", runs_page.render(runs, runs_page.file_links(logs, logs)))
    return logs / "index.html" if request.param == "all runs" else logs / "r2" / write.NAME


@pytest.fixture
def report_tab(browser: Any, page: Path) -> Iterator[Any]:
    """Yield the page in a fresh tab, with its requests and messages."""
    # Bypass the page's ban on scripts, which would block axe.
    context = browser.new_context(bypass_csp=True)
    tab = open_watched_tab(context)
    tab.goto(page.as_uri())
    yield tab
    context.close()


def test_page_requests_no_other_file_and_logs_no_error(report_tab: Any, page: Path):
    assert report_tab.requests == [page.as_uri()]
    assert report_tab.messages == []


def test_its_own_policy_forbids_scripts(browser: Any, page: Path):
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        with pytest.raises(sync_api.Error, match="Content Security Policy"):
            tab.add_script_tag(content="1 + 1")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_needs_scrolling_sideways(report_tab: Any, width: int):
    report_tab.set_viewport_size({"width": width, "height": 900})
    assert report_tab.evaluate("document.documentElement.scrollWidth") <= width


def test_tab_reaches_every_link(report_tab: Any):
    links = report_tab.evaluate("[...document.querySelectorAll('a')].map(each => each.href)")
    reached = []
    for _ in range(report_tab.evaluate("document.querySelectorAll('a, [tabindex], summary').length")):
        report_tab.keyboard.press("Tab")
        reached.append(report_tab.evaluate("document.activeElement.href"))
    assert links
    assert [link for link in reached if link] == links


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "light"),
        (1280, "dark"),
        *(
            pytest.param(width, scheme, marks=pytest.mark.slow)
            for width, scheme in ((390, "dark"), (768, "light"), (768, "dark"), (1280, "light"))
        ),
    ],
)
def test_axe_finds_nothing(report_tab: Any, width: int, scheme: str):
    report_tab.set_viewport_size({"width": width, "height": 900})
    report_tab.emulate_media(color_scheme=scheme)
    assert violations(report_tab) == []


def test_on_paper_there_is_the_content_alone(report_tab: Any):
    report_tab.emulate_media(media="print")
    assert not any(element.is_visible() for element in report_tab.query_selector_all("nav, .skip"))
    assert all(heading.is_visible() for heading in report_tab.query_selector_all("h2"))


@pytest.mark.slow
def test_pictures_of_it_are_kept(report_tab: Any, page: Path, request: pytest.FixtureRequest):
    keep(report_tab, request.node.callspec.params["page"].replace(" ", "-"))
