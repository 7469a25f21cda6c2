"""Pages in a real browser: their requests and messages, axe's findings, and screenshots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="no driver for a browser: playwright is not installed")
axe = pytest.importorskip("axe_core_python.sync_playwright", reason="no axe: axe-core-python is not installed")

WIDTHS = (390, 768, 1280)
"""Of a phone, a tablet, and a screen on a desk."""

needs_browser = pytest.mark.needs("chromium")


def open_watched_tab(context: Any) -> Any:
    """Return a new tab that records its `requests` and its `messages` (console output and dialogs)."""
    tab = context.new_page()
    tab.requests, tab.messages = [], []
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.on("console", lambda message: tab.messages.append(message.text))
    tab.on("pageerror", lambda error: tab.messages.append(str(error)))
    tab.on("dialog", lambda dialog: (tab.messages.append(dialog.message), dialog.dismiss()))
    return tab


def violations(tab: Any) -> list[tuple[str, str]]:
    """Return axe's findings: the rule, and the first element that breaks it."""
    return [(violation["id"], violation["nodes"][0]["html"]) for violation in axe.Axe().run(tab)["violations"]]


def keep(tab: Any, name: str) -> None:
    """Save a screenshot of the whole page at each width, below $SCREENSHOTS or out/screenshots."""
    folder = Path(os.environ.get("SCREENSHOTS") or "out/screenshots")
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        tab.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
