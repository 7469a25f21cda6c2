"""Vocabularies that remember values, against a simulation with dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from components.base.errors import MachineError
from components.features import aged_vocabulary
from components.features.accumulators import VocabularyAccumulator
from components.features.aged_vocabulary import AgedVocabularyAccumulator

NAME, FILE = "user_vocab", "vocabulary_user_vocab"


def run(folder: Path, texts: Sequence[str], source: str, earlier: Path | None = None, **options: int) -> list[str]:
    """Count texts in two batches as Transform does; return the entries of the vocabulary."""
    fields = {"size": 100, "min_frequency": 3, "keep_runs": 2, **options}
    accumulator = AgedVocabularyAccumulator(counts=False, name=NAME, **fields)
    accumulator = accumulator.begin_with(None if earlier is None else str(earlier), FILE, source)
    state = accumulator.empty()
    for part in (texts[::2], texts[1::2]):
        counts = Counter(part)
        texts_of_part = np.array([text.encode() for text in counts], object)
        state = accumulator.merge(state, accumulator.add([], texts_of_part, np.array([*counts.values()], np.int64)))
    (folder / "graph" / aged_vocabulary.FOLDER).mkdir(parents=True)
    content = accumulator.write(accumulator.prune(state), str(folder / "graph"), FILE)
    copied = folder / "model" / "assets.extra"
    copied.mkdir(parents=True)
    (folder / "graph" / aged_vocabulary.FOLDER).rename(copied / aged_vocabulary.FOLDER)
    return content.decode().splitlines()


def read_counts(model: Path) -> dict[str, tuple[int, int]]:
    values = aged_vocabulary.read(str(model / "assets.extra" / aged_vocabulary.FOLDER / f"{FILE}.parquet")).values
    return {row["text"].decode(): (row["count"], row["last"]) for row in values.to_pylist()}


@pytest.mark.parametrize("keep_runs", [1, 2, 3])
def test_values_are_admitted_by_their_sum_and_forgotten_by_their_age(tmp_path: Path, keep_runs: int) -> None:
    random = np.random.default_rng(8)
    counted: Counter[str] = Counter()
    last: dict[str, int] = {}
    forgotten = admitted = 0
    model = None
    for number in range(1, 7):
        texts = [f"u{value}" for value in random.zipf(1.4, 60) + 7 * number if value < 90]
        entries = run(tmp_path / str(number), texts, f"day {number}", model, keep_runs=keep_runs)
        before = {name for name, count in counted.items() if count >= 3}
        counted.update(texts)
        last |= dict.fromkeys(texts, number)
        for name in [name for name, seen in last.items() if seen <= number - keep_runs]:
            del counted[name], last[name]
            forgotten += 1
        expected = sorted((name for name in counted if counted[name] >= 3), key=lambda name: (-counted[name], name))
        assert entries == expected
        admitted += len(set(entries) - before)
        model = tmp_path / str(number) / "model"
        assert read_counts(model) == {name: (counted[name], last[name]) for name in counted}
    assert forgotten > 10
    assert admitted > 5


def test_same_data_are_counted_once(tmp_path: Path) -> None:
    texts = ["a"] * 2 + ["b"] * 4 + ["", "c\nd"]
    assert run(tmp_path / "1", texts, "day 1") == ["b"]
    assert run(tmp_path / "again", texts, "day 1", tmp_path / "1" / "model") == ["b"]
    assert (
        read_counts(tmp_path / "again" / "model") == read_counts(tmp_path / "1" / "model") == {"a": (2, 1), "b": (4, 1)}
    )
    assert run(tmp_path / "2", ["a", "e"], "day 2", tmp_path / "again" / "model") == ["b", "a"]


def test_run_without_values_keeps_the_vocabulary_until_it_is_old(tmp_path: Path) -> None:
    run(tmp_path / "1", ["a"] * 3, "day 1")
    assert run(tmp_path / "2", [], "day 2", tmp_path / "1" / "model") == ["a"]
    nothing = VocabularyAccumulator(100, 3, counts=False).result([]).decode().splitlines()
    assert run(tmp_path / "3", [], "day 3", tmp_path / "2" / "model") == nothing


def test_size_limits_the_entries_but_not_the_counts(tmp_path: Path) -> None:
    assert run(tmp_path / "1", ["a"] * 3 + ["b"] * 4 + ["c"] * 5, "day 1", size=2) == ["c", "b"]
    assert run(tmp_path / "2", ["a"] * 4, "day 2", tmp_path / "1" / "model", size=2) == ["a", "c"]


def test_model_without_counts_begins_with_none(tmp_path: Path) -> None:
    (tmp_path / "stock").mkdir()
    assert run(tmp_path / "1", ["a"] * 3, "day 1", tmp_path / "stock") == ["a"]


def test_changes_are_described(tmp_path: Path) -> None:
    run(tmp_path / "1", ["a"] * 3 + ["b"], "day 1")
    run(tmp_path / "2", ["c"] * 3, "day 2", tmp_path / "1" / "model", keep_runs=1)
    [change] = aged_vocabulary.read_changes(str(tmp_path / "2" / "model" / "assets.extra"))
    assert str(change) == ("user_vocab: run 2: 1 values have an ID, 0 are counted until they get one, 2 were forgotten")


def test_damaged_file_is_reported(tmp_path: Path) -> None:
    run(tmp_path / "1", ["a"] * 3, "day 1")
    path = tmp_path / "1" / "model" / "assets.extra" / aged_vocabulary.FOLDER / f"{FILE}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(MachineError, match="expected the counts of a vocabulary, received"):
        run(tmp_path / "2", ["a"], "day 2", tmp_path / "1" / "model")
