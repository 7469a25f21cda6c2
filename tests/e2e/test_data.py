"""Bad rows in a run are quarantined, counted, reported, and can be found again."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.data import bad_rows, people
from tests.support.runs.command import command

pytestmark = pytest.mark.e2e


def test_bad_rows_are_set_aside_counted_and_shown(tmp_path: Path):
    lines = people.write(tmp_path / "rows.csv", people.rows(1000)).read_text(encoding="utf-8").splitlines()
    lines[7] += ";surplus"
    lines[500] = lines[500].replace(lines[500].split(";")[1], "many", 1)
    # The file extension may be wrong.
    packed = tmp_path / "people.csv"
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    section = {
        **people.CONFIG["data"],
        "types": {"hours": "int"},
        "split": {"by": "group", "columns": ["age"], "train": 2, "eval": 1},
        "bad_rows": {"max_fraction": 0.002},
    }
    config = people.write_config(tmp_path / "people.yaml", packed, data=section)
    arguments = ("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--to", "ExampleGen")

    result = command(*arguments, "--json").result
    assert result["state"] == "done"
    assert (result["rows_read"], result["rows_excluded"]) == (1000, {"quarantined": 2})
    assert sum(result["rows"].values()) == 998
    types = {"age": "float", "hours": "int", "city": "bytes", "income": "bytes", "spent": "float"}
    assert result["column_types"] == types
    first, second = bad_rows.read(result["quarantine"])
    assert (first["file"], first["row"], first["reason"]) == (str(packed), 8, "expected 5 fields, received 6")
    assert (second["row"], second["column"], second["content"]["hours"]) == (501, "hours", "many")

    shown = command(*arguments)
    assert shown.exit_code == 0
    assert "quarantined 2 (of 1,000 read)" in shown.out + shown.err
    assert f"bad rows: {result['quarantine']}" in shown.out + shown.err

    ended = command(*arguments, "--set", "data.bad_rows.max_fraction=0.001")
    assert ended.exit_code == 2
    assert f"error: {packed}, row 8: expected 5 fields, received 6" in ended.out
    assert f"  - {packed}, row 501: column hours: expected an int64, received 'many'" in ended.out
