"""A task waits for the end of its chief, also when the chief closes single connections."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from components.trainer.cluster import chief_watch
from components.trainer.cluster.chief_watch import ChiefWatch


def start(address: str) -> ChiefWatch:
    """Return a watch that has looked up the host."""
    watch = ChiefWatch(address)
    watch.start()
    deadline = time.monotonic() + 30
    while watch._ip is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return watch


def test_wait_ends_with_the_chief() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        watch = start(f"localhost:{chief.getsockname()[1]}")
        waiting = threading.Thread(target=watch.wait_for_end)
        waiting.start()
        first, _ = chief.accept()
        first.sendall(b"settings")
        first.close()
        # The chief runs, so the task connects again.
        second, _ = chief.accept()
        assert waiting.is_alive()
    second.close()
    waiting.join(30)
    assert not waiting.is_alive()


def test_chief_that_does_not_listen_or_has_no_known_name_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chief:
        port = chief.getsockname()[1]
    start(f"[127.0.0.1]:{port}").wait_for_end()
    monkeypatch.setattr(chief_watch, "_FIRST_SECONDS", 30.0)
    unknown = ChiefWatch("chief.invalid:2222")
    unknown.start()
    unknown.wait_for_end()
