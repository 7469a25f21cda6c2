"""Compares the newest requests with the rows that the versions which have answered were trained on, and with labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import pyarrow as pa

from components.data import file_io, split_sample
from components.data.examples import Examples, Format
from components.data.saved_model import column_of
from components.data.split_sample import first_values
from components.evaluator import tfma_results
from components.features import expression
from components.ingest.column_types import Kind
from components.monitor import judgement, request_log
from components.monitor.outcomes import Labelled, Outcomes
from components.monitor.plan import MonitorPlan
from components.monitor.request_log import ServedRows
from components.monitor.result import Monitoring, VersionDifference
from components.predictor import model_interface, output
from components.predictor.model_interface import ModelInterface

TRAINING, BEFORE = "training", "the window before"
SPLIT = "train"
_RANGES = 64
"""Row groups that are read at most: rows in an order, such as of time, are not drawn from a few places."""


@dataclass(frozen=True)
class Version:
    """A pushed version.

    Attributes:
      model: the folder of its SavedModel.
      examples: the files of the training rows.
      evaluation: the folder of its evaluation; None if there is none.
    """

    model: str
    examples: tuple[str, ...]
    evaluation: str | None


def example_files(uri: str) -> tuple[str, ...]:
    """Lists the files with the training rows of an Examples artifact; none if they were deleted.

    Args:
      uri: of the artifact.
    """
    return tuple(sorted(file_io.file_system(uri).glob(f"{uri}/Split-{SPLIT}/*")))


class Windows(NamedTuple):
    """The files of a request log by their time.

    Attributes:
      now: those of the newest window.
      before: those of the window before.
      labelled: those whose answers are joined with labels.
    """

    now: list[str]
    before: list[str]
    labelled: list[str]


def windows(plan: MonitorPlan) -> Windows:
    """Divides the files of the request log.

    Raises:
      InputError: there is no file.
    """
    files, window = request_log.files(plan.monitor.requests), plan.monitor.window
    ages = {each.path: files[-1].time - each.time for each in files}
    now, before = ([path for path, age in ages.items() if age // window == number] for number in (0, 1))
    longest = plan.monitor.label_window or window
    return Windows(now, before, [path for path, age in ages.items() if age < longest] if plan.labels else [])


def monitor(versions: Mapping[int, Version], plan: MonitorPlan) -> Monitoring:
    """Judges each version that has answered requests in the newest window; empty if none has.

    The requests are compared with the rows that the version was trained on, and with those of the window before. With
    labels, metrics of the answers are compared with the Evaluator's, and between versions.

    Args:
      versions: number → version.
      plan: the requests, labels and bounds.

    Raises:
      InputError: there are no requests; or labels do not fit.
    """
    files, rows = windows(plan), plan.monitor.most_rows
    now, before = (request_log.read(paths, rows) for paths in (files.now, files.before))
    answered = now if files.labelled == files.now else request_log.read(files.labelled, rows)
    known = {number: versions.get(number) for number in {*now, *answered}}
    training = {number: _draw(version, rows) for number, version in known.items() if version}
    judged = []
    for number, served in now.items():
        version = known[number]
        if version is None:
            continue
        model = model_interface.read(version.model)
        references = {TRAINING: _compared(training[number], model, plan)}
        if number in before:
            references[BEFORE] = _columns(before[number], model)
        sample = _columns(served, model)
        judged += [judgement.judge(number, served.rows, each, sample, plan.monitor) for each in references.items()]
    if plan.labels is None:
        return Monitoring(tuple(judged))
    labelled: list[Labelled] = []
    compared: list[VersionDifference] = []
    for at, of_label in enumerate(plan.of_labels()):
        outcomes, found = Outcomes(of_label), list[Labelled]()
        for number, served in answered.items():
            version = known[number]
            if version is not None and outcomes.are_answered(number, served):
                folder = version.evaluation and plan.evaluation.folders(version.evaluation)[at]
                evaluated = tfma_results.read(folder) if folder else []
                found.append(outcomes.measure(number, served, version.model, _kinds(training[number]), evaluated))
        labelled += found
        compared += filter(None, (outcomes.compare(found[0], each) for each in found[1:]))
    return Monitoring(tuple(judged), tuple(each.outcome for each in labelled), tuple(compared))


def _columns(served: ServedRows, model: ModelInterface) -> dict[str, pa.Array]:
    """What was sent and answered, of the columns that the model reads."""
    read = [name for name in served.columns if model.columns is None or name in model.columns]
    return {**{name: served.columns[name] for name in read}, **output.columns(served.outputs)}


def _draw(version: Version, rows: int) -> pa.RecordBatch:
    """A sample of the training rows."""
    stored: Format = "parquet" if version.examples[0].endswith(".parquet") else "tfrecord"
    return split_sample.draw(Examples(version.examples, stored), rows, ranges=_RANGES)


def _compared(batch: pa.RecordBatch, model: ModelInterface, plan: MonitorPlan) -> dict[str, pa.Array]:
    """Training rows as requests are compared: the columns that the model reads, and its predictions."""
    # Which columns a model of tf.Examples reads is not known, but a request has no label.
    of_labels = (name for each in plan.evaluation.of_labels() for name in expression.parse(each.label).columns)
    unread = {*of_labels, plan.evaluation.weight, plan.monitor.key}
    names = model.columns if model.columns is not None else [each for each in batch.schema.names if each not in unread]
    columns = {name: first_values(column_of(batch, name)) for name in names}
    return {**columns, **output.columns(model.predict(batch))}


def _kinds(batch: pa.RecordBatch) -> dict[str, Kind]:
    """The kinds of the columns that have values."""

    def kind(type_: pa.DataType) -> Kind:
        value = cast(pa.DataType, type_.value_type)
        return Kind.INT if pa.types.is_integer(value) else Kind.FLOAT if pa.types.is_floating(value) else Kind.BYTES

    columns = zip(batch.schema.names, batch.schema.types, strict=True)
    return {name: kind(type_) for name, type_ in columns if not pa.types.is_null(type_)}
