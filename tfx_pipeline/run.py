"""A run of a pipeline: what it measured and decided, and predictions and explanations of its model."""

from __future__ import annotations

import html
import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from tfx_pipeline.command_line import COMMAND_LINE, CommandError
from tfx_pipeline.tables import to_json_rows, write_parquet

_ROW = "__row__"
"""Name of a column with the numbers of the rows, which `predict` copies to the predictions."""


@dataclass(frozen=True)
class Report:
    """The page on a run. A notebook shows it.

    Attributes:
      path: The HTML file, which needs no other file.
    """

    path: Path

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 45em; border: 0"></iframe>'


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Attributes:
      id: ID of the run.
      store: The metadata store that holds it.
      description: All facts of the run, as `runner.py runs show --json` prints them.
    """

    id: str
    store: Path
    description: dict[str, Any] = field(repr=False)

    @property
    def state(self) -> str:
        """`done`, `rejected`, `failed` or `interrupted`."""
        return str(self.description["state"])

    @property
    def verdict(self) -> str:
        """`blessed`, `not blessed` or `not evaluated`."""
        return str(self.description["summary"]["verdict"])

    @property
    def metrics(self) -> dict[str, float]:
        """Metric → value on the rows of the eval split."""
        return dict(self.description["summary"]["metrics"])

    @property
    def checks(self) -> pd.DataFrame:
        """The thresholds of the config, with a row for each: what was required, what was received, and the result."""
        return pd.DataFrame(self.description["summary"]["checks"])

    @property
    def config(self) -> dict[str, Any]:
        """The values of all fields of the config."""
        return dict(self.description["config"])

    @property
    def pushed(self) -> Path | None:
        """Folder of the pushed version, a SavedModel; None if the model was not pushed."""
        folder = self.description["summary"]["pushed"]
        return None if folder is None else Path(folder)

    @property
    def importance(self) -> pd.DataFrame:
        """How much the model depends on each column, the most important first.

        `share` is the share of the column in all columns' effects on the loss; `loss` is the increase of the loss when
        the values of the column are permuted among the rows.

        Raises:
          CommandError: The importance was not measured.
        """
        measured = json.loads(self._command("explain", "--json"))
        columns = [
            {
                "column": column["column"],
                "share": (column["share"] or {}).get("value", np.nan),
                "loss": column["loss"]["value"],
            }
            for column in measured["columns"]
        ]
        return pd.DataFrame(columns).set_index("column")

    def predict(self, rows: pd.DataFrame | pa.Table) -> pd.DataFrame:
        """Predict rows with the model of this run, also if it was not pushed.

        Args:
          rows: The columns of the training data in any order, with any types that fit; missing values are allowed.
            Columns that the model does not use are ignored.

        Returns:
          The predictions, such as `probability`, with the index of `rows`. Rows with values that the model cannot read
          are missing, and a warning says how many.

        Raises:
          CommandError: A column is missing or has a type that does not fit.
        """
        count = len(rows)
        with tempfile.TemporaryDirectory() as scratch:
            data, into = Path(scratch, "rows.parquet"), Path(scratch, "predictions")
            write_parquet(rows, data, **{_ROW: pa.array(range(count))})
            words = ["--model", self._model, "--data", str(data), "--into", str(into), "--columns", _ROW, "--json"]
            result = json.loads(COMMAND_LINE.run(["predict", *words]))
            predictions = parquet.read_table(into).to_pandas()
        if result["quarantined"]:
            warnings.warn(f"{result['quarantined']:,} of {count:,} rows cannot be predicted", stacklevel=2)
        index = rows.index if isinstance(rows, pd.DataFrame) else pd.RangeIndex(count)
        return predictions.set_index(_ROW).reindex(range(count)).set_axis(index)

    def explain(self, rows: pd.DataFrame | pa.Table) -> pd.DataFrame:
        """Compute the contribution of each column to the predictions of rows.

        Contributions are Shapley values against 100 training rows. Those of a row add up to the difference between its
        prediction and the mean prediction of the training rows.

        Args:
          rows: The columns of the training data; a few rows, because each takes up to 16,384 predictions.

        Returns:
          A row for each row, with its index, and a column for each column of the data.

        Raises:
          CommandError: The model cannot be explained, or a value does not fit.
        """
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "rows.jsonl")
            file.write_text("".join(f"{row}\n" for row in to_json_rows(rows)), encoding="utf-8")
            explained = json.loads(self._command("explain", "--rows", str(file), "--json"))["rows"]
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        contributions = [
            {column["column"]: column["contribution"] for column in explanation["columns"]} for explanation in explained
        ]
        return pd.DataFrame(contributions, index=index)

    def report(self) -> Report:
        """Write the page on this run."""
        return Report(Path(self._command("runs", "report").splitlines()[0]).absolute())

    @property
    def _model(self) -> str:
        model = self.description["summary"]["model"]
        if model is None:
            raise CommandError(f"run {self.id} did not train a model\n  remedy: use a run that has trained one")
        return f"{model}/Format-Serving"

    def _command(self, *words: str) -> str:
        """Run a verb on this run. A verb of two words begins with `runs`."""
        verb = words[:2] if words[0] == "runs" else words[:1]
        return COMMAND_LINE.run([*verb, self.id, "--store", str(self.store), *words[len(verb) :]])


def load(output: str | Path = "out", run: str = "latest", *, config: str | Path | None = None) -> Run:
    """Load a run.

    Args:
      output: Folder of the runs.
      run: ID of the run, or the beginning of it; `latest` is the newest run in the folder.
      config: Config of the pipeline, if the folder has runs of several pipelines; otherwise the newest run of all.

    Raises:
      CommandError: The folder has no such run.
    """
    selection: Sequence[str] = ["--output", str(output), *(["--config", str(config)] if config is not None else [])]
    description = json.loads(COMMAND_LINE.run(["runs", "show", run, *selection, "--json"]))
    return Run(description["run"], Path(description["store"]), description)


def compare(before: Run, now: Run) -> dict[str, Any]:
    """Compare two runs of the same pipeline: config, schema, data, metrics, model.

    Returns:
      The differences, as `runner.py runs compare --json` prints them.
    """
    words = [before.id, now.id, "--store", str(now.store), "--json"]
    comparison: dict[str, Any] = json.loads(COMMAND_LINE.run(["runs", "compare", *words]))
    return comparison
