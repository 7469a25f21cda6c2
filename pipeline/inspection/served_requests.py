"""The requests that versions have answered, compared with the rows that they were trained on."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from components.data import file_io, split_sample
from components.data.examples import Examples, Format
from components.data.saved_model import column_of
from components.data.split_sample import first_values
from components.errors import InputError
from components.monitor import judgement, request_log
from components.monitor.comparison import Columns
from components.monitor.config import MonitorConfig
from components.monitor.judgement import Judgement
from components.monitor.request_log import ServedRows
from components.predictor import model_interface, output
from components.predictor.model_interface import ModelInterface
from pipeline.core.metadata.store import Artifact, Store

TRAINING, BEFORE = "training", "the window before"
_SPLIT = "train"
_RANGES = 64
"""Row groups that are read at most: rows in an order, such as of time, are not drawn from a few places."""


def judge(store: Store, runs: Mapping[int, tuple[str, str]], config: MonitorConfig) -> list[Judgement]:
    """Judges each version that has answered requests in the newest window.

    They are compared with the rows that the version was trained on, and with those of the window before.

    Args:
      store: with the runs.
      runs: version → the run that has pushed it, and the folder of its model.
      config: the requests, and bounds.

    Raises:
      InputError: there are no requests, or the examples of the run of a version are not there any more.
    """
    files = request_log.files(config.requests)
    ages = {each.path: files[-1].time - each.time for each in files}
    windows = ([path for path, age in ages.items() if age // config.window == number] for number in (0, 1))
    now, before = (request_log.read(paths, config.most_rows) for paths in windows)
    judged = []
    for version, served in now.items():
        if version not in runs:
            continue
        run, folder = runs[version]
        model = model_interface.read(folder)
        sample = _columns(served, model)
        references = {TRAINING: _training(store, run, model, config.most_rows)}
        if version in before:
            references[BEFORE] = _columns(before[version], model)
        judged += [judgement.judge(version, served.rows, each, sample, config) for each in references.items()]
    return judged


def _columns(served: ServedRows, model: ModelInterface) -> dict[str, pa.Array]:
    """What was sent and answered, of the columns that the model reads."""
    read = [name for name in served.columns if model.columns is None or name in model.columns]
    return {**{name: served.columns[name] for name in read}, **output.columns(served.outputs)}


def _training(store: Store, run: str, model: ModelInterface, rows: int) -> Columns:
    """A sample of the training rows of a run, and the model's predictions for them."""
    artifact = next((each for each in store.artifacts(run, "Examples") if f"rows_{_SPLIT}" in each.properties), None)
    if artifact is None or not _files(artifact):
        raise InputError(
            f"run {run}: expected its examples, to compare requests with them, received none",
            "keep the artifacts of runs whose versions serve (`runner.py gc` does)",
        )
    paths = tuple(_files(artifact))
    stored: Format = "parquet" if paths[0].endswith(".parquet") else "tfrecord"
    batch = split_sample.draw(Examples(paths, stored), rows, ranges=_RANGES)
    names = model.columns if model.columns is not None else batch.schema.names
    columns = {name: first_values(column_of(batch, name)) for name in names}
    return {**columns, **output.columns(model.predict(batch))}


def _files(artifact: Artifact) -> list[str]:
    return sorted(file_io.file_system(artifact.uri).glob(f"{artifact.uri}/Split-{_SPLIT}/*"))
