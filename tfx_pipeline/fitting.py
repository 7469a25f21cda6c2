"""Write a config for a table and run the pipeline on it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tfx_pipeline.command_line import COMMAND_LINE
from tfx_pipeline.run import Run, load
from tfx_pipeline.tables import write_parquet

_LOGS = re.compile(r"^run (\S+) of .*, logs in (.+)$", re.MULTILINE)
"""A line that `run` prints at the beginning."""
_NODE = re.compile(r"^(\w+): (running|\w+ in )", re.MULTILINE)
"""A line that `run` prints when a node begins or ends."""


def fit(
    data: pd.DataFrame | pa.Table | str | Path | None = None,
    label: str | None = None,
    *,
    name: str = "model",
    output: str | Path = "out",
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: float = 60,
    keep: Sequence[str] = (),
    progress: bool = True,
) -> Run:
    """Fit a model and take it through the whole pipeline: checks, training, evaluation, serving check and push.

    Either give data and a label: the config is then written to `<output>/<name>.yaml`, as `runner.py init` does. Or
    give a config, for example one that you have edited.

    Args:
      data: A DataFrame, an Arrow table, or the path of a CSV or Parquet file.
      label: What to predict: a column, or an expression such as `"tips > 2"`.
      name: Name of the pipeline, in lower-case letters, digits, - and _.
      output: Folder of the runs.
      config: Path of a config, instead of data and label.
      settings: Field of the config → value, such as `{"training.steps": 200}`.
      budget: Seconds for fitting several kinds of models, of which the best is taken; 0 to choose by rules.
      keep: Protected attributes of persons, such as age or gender, that become features.
      progress: Whether to show a progress bar.

    Returns:
      The run, also if a gate rejected the model; see `Run.verdict`.

    Raises:
      CommandError: The data or the config is not valid, or a node failed.
      TypeError: Neither a config nor data with a label was given, or both.
    """
    if (config is None) != (data is not None and label is not None):
        raise TypeError("expected data and a label, or a config")
    with _Bar(progress) as bar:
        if config is None:
            # The config contains absolute paths, so that it runs from any folder.
            config = Path(output, f"{name}.yaml").absolute()
            bar.describe("looking at the table")
            _write_config(data, str(label), config, budget, keep)
        assignments = [
            word
            for field, value in (settings or {}).items()
            # YAML contains JSON, in which None and True are written otherwise than in Python.
            for word in ("--set", f"{field}={value if isinstance(value, str) else json.dumps(value)}")
        ]
        bar.describe("importing TensorFlow and TFX")
        arguments = ["run", "--config", str(config), "--output", str(output), *assignments]
        match = _LOGS.search(COMMAND_LINE.run(arguments, bar.update))
    return load(output, match[1] if match else "latest", config=config)


def _write_config(
    data: pd.DataFrame | pa.Table | str | Path | None, label: str, config: Path, budget: float, keep: Sequence[str]
) -> None:
    if isinstance(data, (str, Path)):
        path = Path(data).absolute()
    else:
        path = config.with_suffix(".parquet")
        write_parquet(data, path)
    config.parent.mkdir(parents=True, exist_ok=True)
    files = ["--config", str(config), "--schema", str(config.with_suffix(".pbtxt")), "--force"]
    kept = ["--keep", *keep] if keep else []
    COMMAND_LINE.run(["init", "--data", str(path), "--label", label, "--budget", str(budget), *kept, *files])


class _Bar:
    """A progress bar over the nodes of a run, in a terminal or a notebook."""

    def __init__(self, visible: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, disable=not visible)
        self._task = self._progress.add_task("", total=None)
        self._record: Path | None = None
        self._done: set[str] = set()

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def describe(self, text: str) -> None:
        """Show what is being done."""
        self._progress.update(self._task, description=text)

    def update(self, text: str) -> None:
        """Show the nodes that have begun and ended, by the output of the run."""
        if match := _LOGS.search(text):
            self._record = Path(match[2], "run.json")
        for node, state in _NODE.findall(text):
            if state == "running":
                self.describe(node)
            else:
                self._done.add(node)
                self._progress.update(self._task, completed=len(self._done), total=self._count_nodes())

    def _count_nodes(self) -> int | None:
        """Return the number of nodes by the record of the run; None if it cannot be read."""
        if self._record is None or not self._record.exists():
            return None
        return len(json.loads(self._record.read_text(encoding="utf-8"))["nodes"])
