"""Every input of the corpora, seeds and earlier failures, ends in a value or a documented error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runs import fuzz_targets as targets


@pytest.fixture(scope="module", autouse=True)
def files() -> Iterator[None]:
    yield
    targets.remove_files()


@pytest.mark.parametrize("target", targets.TARGETS)
# Arrow also warns when it cannot decode the text of a ragged row; the row is counted as bad anyway.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_corpus(target: str) -> None:
    inputs = sorted((targets.CORPUS / target).iterdir())
    assert inputs
    for file in inputs:
        targets.TARGETS[target](file.read_bytes())


def test_each_corpus_has_a_target() -> None:
    assert {folder.name for folder in Path(targets.CORPUS).iterdir()} == set(targets.TARGETS)
