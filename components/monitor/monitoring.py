"""Compare the newest requests to each version with its training rows, and its answers with delayed labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import pyarrow as pa

from components.data import file_io, request_log, saved_model, split_sample
from components.data.examples import Examples, Format
from components.data.private_columns import HASH, PrivateColumns
from components.data.request_log import ServedRows
from components.data.saved_model import column_of
from components.data.split_sample import first_values
from components.evaluator import tfma_results
from components.ingest.column_types import Kind
from components.monitor import judgement
from components.monitor.outcomes import Labelled, Outcomes
from components.monitor.plan import MonitorPlan
from components.monitor.result import Monitoring, Outcome, VersionDifference
from components.predictor import model_interface
from components.predictor.model_interface import ModelInterface
from components.results.log_secret import read_secret

TRAINING, BEFORE = "training", "the window before"
"""Names of the references that requests are compared with."""
SPLIT = "train"
"""The split with the training rows."""
_MAX_ROW_GROUPS = 64
"""Maximum number of row groups that a sample of the training rows is drawn from. It is large because rows may be
sorted, for example by time, and a few row groups would then not represent the split."""


@dataclass(frozen=True)
class Version:
    """A pushed version.

    Attributes:
      model: Folder of the SavedModel.
      examples: Files with the training rows.
      evaluation: Folder of the Evaluator's results. None if the version was not evaluated.
    """

    model: str
    examples: tuple[str, ...]
    evaluation: str | None


def list_example_files(uri: str) -> tuple[str, ...]:
    """List the files with the training rows of an Examples artifact; empty if they were deleted.

    Args:
      uri: URI of the artifact.
    """
    return tuple(sorted(file_io.file_system(uri).glob(f"{uri}/Split-{SPLIT}/*")))


class Windows(NamedTuple):
    """The files of a request log, selected by their time.

    Attributes:
      now: Files of the newest window.
      before: Files of the window before the newest.
      labelled: Files whose answers are joined with labels. Empty if the plan does not name labels.
    """

    now: list[str]
    before: list[str]
    labelled: list[str]


def find_windows(plan: MonitorPlan) -> Windows:
    """Select the files of the request log by their age relative to the newest file.

    Raises:
      InputError: If the log does not contain any file.
    """
    files, window = request_log.files(plan.monitor.requests), plan.monitor.window
    ages = {file.path: files[-1].time - file.time for file in files}
    now, before = ([path for path, age in ages.items() if age // window == number] for number in (0, 1))
    label_window = plan.monitor.label_window or window
    return Windows(now, before, [path for path, age in ages.items() if age < label_window] if plan.labels else [])


def monitor(versions: Mapping[int, Version], plan: MonitorPlan) -> Monitoring:
    """Judge every version that answered requests in the newest window.

    The requests are compared with the version's training rows, and with the requests of the window before. If the plan
    names labels, metrics of the answers are compared with the Evaluator's metrics, and between versions.

    Args:
      versions: Number → version. Versions that answered but are not listed are not judged.
      plan: Where the requests and labels are, and the bounds.

    Returns:
      The result, which is empty if none of the versions answered a request.

    Raises:
      InputError: If the log does not contain any file, if the labels cannot be read or do not match the requests, or if
        the secret of the hashes of private columns is not in the environment.
    """
    private = _read_private_columns(plan)
    windows, most_rows = find_windows(plan), plan.monitor.most_rows
    now, before = (request_log.read(paths, most_rows) for paths in (windows.now, windows.before))
    labelled = now if windows.labelled == windows.now else request_log.read(windows.labelled, most_rows)
    known = {number: versions.get(number) for number in {*now, *labelled}}
    training = {number: _draw_training_rows(version, most_rows) for number, version in known.items() if version}
    judgements = []
    for number, served in now.items():
        version = known[number]
        if version is None:
            continue
        model = model_interface.read(version.model)
        references = {TRAINING: _select_training_columns(training[number], model, plan, private)}
        if number in before:
            references[BEFORE] = _select_served_columns(before[number], model, private)
        sample = _select_served_columns(served, model, private)
        judgements += [
            judgement.judge(number, served.rows, reference, sample, plan.monitor) for reference in references.items()
        ]
    if plan.labels is None:
        return Monitoring(tuple(judgements))
    outcomes: list[Outcome] = []
    differences: list[VersionDifference] = []
    for label in plan.evaluation.labels:
        measured: list[Labelled] = []
        label_outcomes = Outcomes(plan, label, private)
        for number, served in labelled.items():
            version = known[number]
            if version is not None and label_outcomes.is_predicted(number, served):
                folder = version.evaluation and plan.evaluation.find_folder(label, version.evaluation)
                evaluated = tfma_results.read(folder) if folder else []
                kinds = _kinds_of_columns(training[number])
                measured.append(label_outcomes.measure(number, served, version.model, kinds, evaluated))
        outcomes += [version_rows.outcome for version_rows in measured]
        differences += filter(None, (label_outcomes.compare(measured[0], newer) for newer in measured[1:]))
    return Monitoring(tuple(judgements), tuple(outcomes), tuple(differences))


def _select_served_columns(served: ServedRows, model: ModelInterface, private: PrivateColumns) -> dict[str, pa.Array]:
    """Return the columns of requests that the model reads, without dropped columns, and its answers."""
    # An older part of the log may still contain a column that is dropped now.
    names = [name for name in served.columns if model.columns is None or name in model.columns]
    names = [name for name in names if name not in private.dropped]
    return {**{name: served.columns[name] for name in names}, **saved_model.convert_outputs(served.outputs)}


def _draw_training_rows(version: Version, rows: int) -> pa.RecordBatch:
    """Draw a random sample of a version's training rows."""
    stored: Format = "parquet" if version.examples[0].endswith(".parquet") else "tfrecord"
    return split_sample.draw(Examples(version.examples, stored), rows, ranges=_MAX_ROW_GROUPS)


def _read_private_columns(plan: MonitorPlan) -> PrivateColumns:
    """Return how the log masks private columns; raise InputError if the secret of their hashes is missing."""
    actions = plan.monitor.private
    secret = read_secret(os.environ, plan.monitor.secret_env) if HASH in actions.values() else b""
    return PrivateColumns(actions, secret)


def _select_training_columns(
    batch: pa.RecordBatch, model: ModelInterface, plan: MonitorPlan, private: PrivateColumns
) -> dict[str, pa.Array]:
    """Return the columns of training rows that the log contains, and the predictions, to compare requests with.

    Args:
      batch: The training rows.
      model: The version's model.
      plan: The plan of the node.
      private: How the log masks private columns. The columns are hashed in the same way.
    """
    names: Iterable[str]
    if model.columns is not None:
        names = model.columns
    else:
        # The signature of a model that reads tf.Examples does not list its columns. Requests lack at least these.
        label_columns = (name for label in plan.evaluation.labels for name in label.columns)
        not_sent = {*label_columns, plan.evaluation.weight, plan.monitor.key}
        names = [name for name in batch.schema.names if name not in not_sent]
    columns = {
        name: private.hash_column(name, first_values(column_of(batch, name)))
        for name in names
        if name not in private.dropped
    }
    return {**columns, **saved_model.convert_outputs(model.predict(batch))}


def _kinds_of_columns(batch: pa.RecordBatch) -> dict[str, Kind]:
    """Return the kind of every column that contains values."""

    def kind_of(type_: pa.DataType) -> Kind:
        item_type = cast(pa.DataType, type_.value_type)
        if pa.types.is_integer(item_type):
            return Kind.INT
        return Kind.FLOAT if pa.types.is_floating(item_type) else Kind.BYTES

    columns = zip(batch.schema.names, batch.schema.types, strict=True)
    return {name: kind_of(type_) for name, type_ in columns if not pa.types.is_null(type_)}
