"""The requests that versions have answered, compared with the rows that they were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from components.data import file_io
from components.data.examples import Examples
from components.data.saved_model import column_of
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
"""Parts of the examples that are read, evenly spaced."""


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
    newest = files[-1].time
    windows = [
        [
            each.path
            for each in files
            if newest - (number + 1) * config.window < each.time <= newest - number * config.window
        ]
        for number in (0, 1)
    ]
    now, before = (request_log.read(paths, config.most_rows) for paths in windows)
    judged = []
    for version, served in now.items():
        if version not in runs:
            continue
        run, folder = runs[version]
        model = model_interface.read(folder)
        sample = _columns(served, model)
        references = {TRAINING: _training(store, run, model, config.most_rows)}
        if version in before and len(_columns(before[version], model)) == len(sample):
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
    batches = list(_sample(artifact, rows))
    outputs = [model.predict(batch) for batch in batches]
    names = model.columns if model.columns is not None else batches[0].schema.names
    columns = {name: _joined([request_log.first_values(column_of(batch, name)) for batch in batches]) for name in names}
    predictions = {name: np.concatenate([each[name] for each in outputs]) for name in outputs[0]}
    return {**columns, **output.columns(predictions)}


def _sample(artifact: Artifact, rows: int) -> Iterator[pa.RecordBatch]:
    """Random rows of row groups that are evenly spaced."""
    paths = _files(artifact)
    examples = Examples(tuple(paths), "parquet" if paths[0].endswith(".parquet") else "tfrecord")
    ranges = [each for path in paths for each in examples.ranges(path)]
    chosen = [ranges[at * len(ranges) // _RANGES] for at in range(_RANGES)] if len(ranges) > _RANGES else ranges
    share = rows / (int(artifact.properties[f"rows_{_SPLIT}"]) * len(chosen) / len(ranges))
    generator = np.random.default_rng(0)
    for file_range in chosen:
        for batch in examples.read(file_range):
            taken = np.flatnonzero(generator.random(batch.num_rows) < share)
            if len(taken):
                yield batch.take(pa.array(taken))


def _files(artifact: Artifact) -> list[str]:
    return sorted(file_io.file_system(artifact.uri).glob(f"{artifact.uri}/Split-{_SPLIT}/*"))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """The parts of a column as one array; a part without values has no type."""
    typed = [each.type for each in parts if not pa.types.is_null(each.type)]
    return pa.concat_arrays([each.cast(typed[0]) if typed else each for each in parts])
