"""The served pages in a real browser: they follow a run, and send requests only to the server that serves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.report_runs import HARM, write_run
from tests.support.servers.browser import WIDTHS, keep, needs_browser, open_watched_tab, sync_api, violations
from tests.support.servers.ui_server import going, serve_pages

pytestmark = needs_browser


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    with browser.new_context() as context:
        yield open_watched_tab(context)


def shows(tab: Any, selector: str, text: str) -> None:
    """Wait until the page shows a text."""
    sync_api.expect(tab.locator(selector)).to_contain_text(text, timeout=60_000)


def test_run_is_followed_from_nothing_to_its_report(tab: Any, tmp_path: Path):
    with serve_pages(tmp_path / "metadata.db") as (address, _):
        tab.goto(address)
        shows(tab, "main", "No run yet.")
        with going(tmp_path) as run:
            shows(tab, f'tr[data-key="{run.run}"]', "running")
            tab.keyboard.press("Tab")
            while tab.evaluate("document.activeElement.textContent") != run.run:
                tab.keyboard.press("Tab")
            tab.keyboard.press("Enter")
            shows(tab, ".now", "The pipeline is being compiled.")
            tab.evaluate("window.sameDocument = true")

            run.step("nodes")
            shows(tab, "#summary", "0 of 4")
            run.step("ExampleGen running")
            shows(tab, ".now", "Running: ExampleGen.")
            tab.get_by_role("link", name="All runs").focus()
            run.step("ExampleGen done")
            run.step("StatisticsGen running")
            run.step("Trainer running")
            shows(tab, ".now", "Running: StatisticsGen, Trainer.")
            shows(tab, "#summary", "1 of 4")
            shows(tab, "#summary", "1,234 MB")
            shows(tab, "tr:has(> th > a:text('ExampleGen'))", "3.0 s")
            assert tab.evaluate("document.activeElement.textContent") == "All runs", "the focus stays where it was"
            keep(tab, "live")

            run.step("done")
            shows(tab, "#evaluation", "at least 0.6")
            assert tab.title() == f"toy: run {run.run}"
            assert tab.evaluate("window.sameDocument"), "it was not reloaded"
            tab.get_by_role("link", name="ExampleGen").first.click()
            shows(tab, "body", "ExampleGen has begun")
        tab.goto(address)
        shows(tab, f'tr[data-key="{run.run}"]', "done")
        assert {url.startswith(address) for url in tab.requests} == {True}
        assert tab.messages == []


def test_page_shows_that_a_run_died(tab: Any, tmp_path: Path):
    with serve_pages(tmp_path / "metadata.db") as (address, _), going(tmp_path) as run:
        run.step("nodes")
        tab.goto(address)
        shows(tab, f'tr[data-key="{run.run}"]', "running")
        run.end()
        shows(tab, f'tr[data-key="{run.run}"]', "died")
        tab.get_by_role("link", name=run.run).click()
        shows(tab, ".now", "The run has ended: died.")


def test_page_reports_a_lost_server_until_it_is_back(tab: Any, tmp_path: Path):
    with serve_pages(tmp_path / "metadata.db") as (address, _):
        tab.goto(address)
        assert tab.locator("#lost").is_hidden()
        tab.context.set_offline(True)
        shows(tab, "#lost:visible", "The server does not respond")
        tab.context.set_offline(False)
        sync_api.expect(tab.locator("#lost")).to_be_hidden(timeout=60_000)


def test_names_that_mean_harm_do_none(tab: Any, tmp_path: Path):
    writer = write_run(tmp_path, "r1", harm=HARM)
    writer.execution(HARM, "Trainer", "RUNNING")
    with serve_pages(tmp_path / "metadata.db") as (address, _):
        for link in ("r1", HARM[:20]):
            tab.goto(address)
            tab.locator("tbody a", has_text=link).click()
            shows(tab, "h2 >> nth=0", "Summary")
        assert tab.messages == []
        assert {url.startswith(address) for url in tab.requests} == {True}


@pytest.mark.parametrize("page", ["index", "going on", pytest.param("report", marks=pytest.mark.slow)])
def test_axe_finds_nothing_at_any_width(browser: Any, tmp_path: Path, page: str):
    # Bypass the page's content security policy, which would block axe.
    with (
        serve_pages(tmp_path / "metadata.db") as (address, _),
        going(tmp_path) as run,
        browser.new_context(bypass_csp=True) as context,
    ):
        tab = open_watched_tab(context)
        run.step("nodes")
        run.step("ExampleGen running")
        if page == "report":
            run.step("done")
        tab.goto(address if page == "index" else f"{address}run/{run.run}/")
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            for scheme in ("light", "dark"):
                tab.emulate_media(color_scheme=scheme)
                assert violations(tab) == []
        tab.emulate_media(color_scheme="light")
        keep(tab, f"served-{page.replace(' ', '-')}")
