"""Tests that the supervisor receives the status messages of a task whole, even from several threads."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

from components.trainer.cluster import heartbeat


def test_long_messages_from_several_threads_are_not_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(heartbeat, "_pipe", writing)
    texts = [letter * 200_000 for letter in "abcd"]

    def send(text: str) -> None:
        for _ in range(10):
            heartbeat.send_status("error", text)

    threads = [threading.Thread(target=send, args=(text,)) for text in texts]

    def send_all() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.close(writing)

    threading.Thread(target=send_all).start()
    with os.fdopen(reading, "rb") as pipe:
        received = Counter(message for line in pipe for message in heartbeat.parse(line))
    assert received == Counter({("error", text): 10 for text in texts})
