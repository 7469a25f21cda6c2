"""Tests for the printed decisions of init, and for its options."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli import init


def run_init(folder: Path, columns: int, *options: str) -> None:
    """Run init on a table with numeric columns c0, c1, ..., and the label y.

    Args:
      folder: Folder of the table and of the written files.
      columns: Number of numeric columns.
      options: Further options of init.
    """
    names = [f"c{number}_{'x' * 50}" for number in range(columns)]
    values = np.random.default_rng(2).normal(size=(60, columns))
    lines = [",".join([*(f"{value:.3f}" for value in row), str(number % 2)]) for number, row in enumerate(values)]
    path = folder / "wide.csv"
    path.write_text("\n".join([",".join([*names, "y"]), *lines]) + "\n")
    parser = argparse.ArgumentParser()
    init.add_arguments(parser)
    output_options = ["--config", str(folder / "wide.yaml"), "--schema", str(folder / "wide.pbtxt")]
    arguments = ["--data", str(path), "--label", "y", *output_options, "--budget", "0", *options]
    assert init.run(parser.parse_args(arguments)) == 0


@pytest.mark.parametrize("width", [60, 100])
def test_long_table_is_shortened_and_fits_the_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    run_init(tmp_path, 44)
    decisions, _, paths = capsys.readouterr().out.partition("\n\n/")
    assert max(map(len, decisions.splitlines())) <= width
    assert not re.search(r" $", decisions, re.MULTILINE)
    column_lines = [line for line in decisions.splitlines() if re.match(r"c\d+", line)]
    assert len(column_lines) == init._COLUMNS_SHOWN
    assert "... and 5 more columns, 4 of them features;" in decisions
    assert paths.splitlines()[-1].endswith(f"python runner.py --local --config {tmp_path / 'wide.yaml'}")


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [("delimiter", ";", ";"), ("delimiter", "\\t", "\t"), ("encoding", "cp1252", "cp1252")],
)
def test_text_format_is_parsed(field: str, text: str, value: str) -> None:
    assert init._make_csv_type(field)(text) == value


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("delimiter", ";;", "expected one ASCII character .*, received ';;'"),
        ("delimiter", "", "expected one ASCII character .*, received ''"),
        ("delimiter", '"', "other than a quote"),
        ("encoding", "utf9", "expected an encoding that Python knows, .*, received 'utf9'"),
    ],
)
def test_invalid_text_format_is_rejected(field: str, text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        init._make_csv_type(field)(text)


def test_kind_can_be_chosen_by_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_init(tmp_path, 2, "--kind", "linear")
    out = capsys.readouterr().out
    assert re.search(r"^model +linear: chosen by --kind$", out, re.MULTILINE)
    assert ", 1 column excluded, label 'y'" in out
    assert "kind: linear" in (tmp_path / "wide.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("0.5", 0.5), ("90s", 90), ("2m", 120), ("1.5 min", 90)]
)
def test_budget_may_have_a_unit(text: str, seconds: float) -> None:
    assert init._parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "a minute", "2 days", ""])
def test_invalid_budget_is_rejected(text: str) -> None:
    expected = f"expected a number of seconds, at least 0, or 90s or 2m, received '{text}'"
    with pytest.raises(argparse.ArgumentTypeError, match=expected):
        init._parse_seconds(text)
