"""The browser that the tests of a file open their pages in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Its driver keeps an event loop running in this thread, so it must be gone before the next file's tests begin."""
    import programs
    from browser import sync_api

    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=programs.find("chromium"))
        yield started
        started.close()
