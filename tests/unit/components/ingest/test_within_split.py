"""Splits within groups equal a computation by pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from components.ingest import csv_reader
from components.ingest.config import SplitConfig
from components.ingest.split_assignment import Splitter
from components.ingest.within_split import RowOrder, borders
from tests.support.runs.ingest_runs import by_split, counts, data, ingest, run_without_beam

SHARES = {"train": 7, "eval": 2, "test": 1}


def reference(table: pd.DataFrame, by: list[str], shares: dict[str, int]) -> pd.Series:
    """Return the split of every row. The rows of a user are divided in the order of the columns `by`."""
    ordered = table.sort_values(["user", *by])
    within = ordered.groupby("user").cumcount().to_numpy()
    size = ordered.groupby("user")["user"].transform("size").to_numpy()
    names, ends = list(shares), np.cumsum(list(shares.values()))
    share_ends = np.floor(size[:, None] * ends[:-1] / ends[-1] + 0.5)
    # Every user has at least one row in the first split.
    split = (within[:, None] >= np.maximum(share_ends, 1)).sum(axis=1)
    return pd.Series(np.array(names)[split], ordered.index).reindex(table.index)


def interactions(users: int = 40) -> pd.DataFrame:
    random = np.random.default_rng(5)
    sizes = random.integers(1, 30, users)
    user = np.repeat(np.arange(users), sizes)
    time = 1_700_000_000 + random.permutation(len(user)) * 13
    table = pd.DataFrame({"user": user, "item": np.arange(len(user)), "time": time})
    return table.sample(frac=1, random_state=1, ignore_index=True)


def test_newest_rows_of_every_user_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small ranges spread the rows of a user over several ranges.
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 2_000)
    table = interactions()
    table.to_csv(tmp_path / "in.csv", index=False)
    split = {"by": "within_time", "columns": ["user", "time"], **SHARES}
    rows_by_split = run_without_beam(data(tmp_path / "in.csv", split=split), tmp_path / "out").rows
    expected = reference(table, ["time"], SHARES)
    for name in SHARES:
        assert sorted(row["item"] for row in rows_by_split[name]) == sorted(table["item"][expected == name])


def test_users_are_identified_even_if_the_type_of_their_column_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_reader, "_RANGE_BYTES", 2_000)
    table = interactions()
    # The first ranges contain only integers, and the last ranges also contain words.
    table.loc[len(table) - 50 :: 5, "user"] = 99
    words = table.assign(user=table["user"].astype(str).replace("99", "someone"))
    words.to_csv(tmp_path / "in.csv", index=False)
    split = {"by": "within_time", "columns": ["user", "time"], **SHARES}
    rows_by_split = run_without_beam(data(tmp_path / "in.csv", split=split), tmp_path / "out").rows
    expected = reference(table, ["time"], SHARES)
    for name in SHARES:
        assert sorted(row["item"] for row in rows_by_split[name]) == sorted(table["item"][expected == name])


def assign_splits(table: pd.DataFrame, **split: Any) -> list[str]:
    config = SplitConfig.model_validate({**split, **SHARES})
    splitter = Splitter(config)
    block = pa.RecordBatch.from_pandas(table[list(config.columns)], preserve_index=False)
    parts = [splitter.order(block.slice(at, 50)) for at in range(0, block.num_rows, 50)]
    split_numbers = splitter.assign(block, None, borders(parts, list(SHARES.values())))
    return [list(SHARES)[number] for number in split_numbers]


def test_rows_of_every_user_are_divided_by_a_hash() -> None:
    table = interactions()
    assigned = pd.Series(assign_splits(table, by="within", columns=["user", "item"]))
    counted = pd.crosstab(table["user"], assigned).reindex(columns=list(SHARES), fill_value=0)
    expected = pd.crosstab(table["user"], reference(table, ["time"], SHARES))
    pd.testing.assert_frame_equal(counted, expected.reindex(columns=list(SHARES), fill_value=0), check_names=False)
    # The split depends only on the user and the item, and not on the order of the rows.
    mixed = table.assign(time=0).sample(frac=1, random_state=2)
    again = pd.Series(assign_splits(mixed, by="within", columns=["user", "item"]), mixed.index)
    assert (again.reindex(table.index) == assigned).all()


def test_item_is_in_different_splits_for_different_users() -> None:
    users, items = 200, 20
    table = pd.DataFrame({"user": np.repeat(np.arange(users), items), "item": np.tile(np.arange(items), users)})
    assigned = pd.Series(assign_splits(table, by="within", columns=["user", "item"]))
    shares = (assigned == "train").groupby(table["item"]).mean()
    # 14 of the 20 rows of a user are for training. Allow 5 standard deviations of the binomial distribution per item.
    assert (np.abs(shares - 0.7) < 5 * np.sqrt(0.7 * 0.3 / users)).all()


def test_rows_with_equal_times_are_in_one_split_or_ordered_by_additional_columns() -> None:
    table = interactions().assign(time=7)
    assert set(assign_splits(table, by="within_time", columns=["user", "time"])) == {"train"}
    assigned = pd.Series(assign_splits(table, by="within_time", columns=["user", "time", "item"]))
    expected = reference(table, ["item"], SHARES)
    assert assigned.value_counts().to_dict() == expected.value_counts().to_dict()


def test_empty_table_is_assigned() -> None:
    empty = borders([], [7, 2, 1])
    nothing = RowOrder(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64))
    assert empty.assign(nothing).tolist() == []


def test_row_without_a_user_or_a_time_is_a_bad_row(tmp_path: Path) -> None:
    lines = [f"{row % 3},{row},{1_700_000_000 + row}" for row in range(30)]
    (tmp_path / "in.csv").write_text("user,item,time\n" + "\n".join([*lines, ",1,5", "2,1,soon"]) + "\n")
    split = {"by": "within_time", "columns": ["user", "time"], "train": 4, "eval": 1}
    config = data(tmp_path / "in.csv", split=split, bad_rows={"max_fraction": 1})
    examples = ingest(config, tmp_path / "out")
    assert (counts(examples)["read"], {name: len(rows) for name, rows in by_split(examples).items()}) == (
        32,
        {"train": 24, "eval": 6},
    )


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"by": "within", "columns": ["user"]}, r"such as columns: \[user, item\], received \['user'\]"),
        ({"by": "within_time", "columns": []}, r"such as columns: \[user, time\], received \[\]"),
        ({"by": "within", "columns": ["user", "item"], "gap": "1d"}, "gap needs by: time"),
        ({"by": "within", "columns": ["user", "item"], "train": ["a"]}, "takes a share such as 8 for train"),
    ],
)
def test_invalid_columns_are_rejected(split: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitConfig.model_validate({"train": 4, "eval": 1, **split})
