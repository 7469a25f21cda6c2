"""The browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a browser; its driver's event loop in this thread must end before the tests of the next file."""
    from tests.support.programs import programs
    from tests.support.servers.browser import sync_api

    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=programs.find("chromium"))
        yield started
        started.close()
