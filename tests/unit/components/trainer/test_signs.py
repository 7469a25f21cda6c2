"""What tasks tell arrives whole, one sign after the other."""

from __future__ import annotations

import os
import threading
from collections import Counter

import pytest

from components.trainer.cluster import signs


def test_long_signs_of_several_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(signs, "_pipe", writing)
    texts = [letter * 200_000 for letter in "abcd"]

    def tell(text: str) -> None:
        for _ in range(10):
            signs.tell("error", text)

    threads = [threading.Thread(target=tell, args=(text,)) for text in texts]

    def tell_all() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.close(writing)

    threading.Thread(target=tell_all).start()
    with os.fdopen(reading, "rb") as pipe:
        found = Counter(sign for line in pipe for sign in signs.read(line))
    assert found == Counter({("error", text): 10 for text in texts})
