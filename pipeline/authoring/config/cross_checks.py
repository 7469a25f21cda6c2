"""Checks between the sections of a config, and between a config and the columns of its data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from components.base.config_section import Problem, Task
from components.base.names import column_name, did_you_mean
from components.evaluator.config import (
    GROUP_METRICS,
    METRICS,
    NUMBERED_METRICS,
    RETRIEVAL_METRICS,
    Threshold,
    label_of,
    metric,
)
from components.features.base_op import Dtype
from components.features.expression import Expression, Label
from components.features.geo_ops import GeoDistance
from components.ingest.config import SAMPLING_WEIGHT
from pipeline.authoring.config.examples_format import tfrecord_readers
from pipeline.authoring.config.exported_names import check_names
from pipeline.authoring.config.model_checks import check_model
from pipeline.authoring.config.own_nodes import check_nodes
from pipeline.authoring.config.root import Config
from pipeline.authoring.config.tune_checks import check_tune
from pipeline.authoring.config.yaml_values import Key

WEIGHT = ("data", "weight")
WHERE = ("data", "where")
SAMPLE = ("data", "sample", "label")


def check_config(config: Config) -> list[Problem]:
    """Return all problems that can be found without the data."""
    return [
        *_label(config),
        *_weight(config),
        *_split(config),
        *_where(config),
        *check_names(config),
        *check_model(config),
        *_own_code(config),
        *check_tune(config),
        *_metrics(config),
        *_importance(config),
        *_decision(config),
        *(problem for section in config.sections() for problem in section.check_against(config)),
        *(problem for node in config.optional_nodes() for problem in node.check_against(config)),
        *check_nodes(config.nodes, config.pipeline.name, config.standard_nodes()),
        *_examples_format(config),
    ]


def _examples_format(config: Config) -> Iterator[Problem]:
    """Yield a problem if the format is Parquet, but some nodes can only read TFRecords."""
    readers = tfrecord_readers(config)
    if config.data.examples_format == "parquet" and readers:
        message = f"{', '.join(readers)} of this pipeline reads only tfrecord, received parquet; leave it out"
        yield Problem(("data", "examples_format"), message)


def check_columns(config: Config, columns: Collection[str]) -> list[Problem]:
    """Return a problem for every name in the config that is not a column of the data."""
    names_by_key = _columns_read(config)
    labels: dict[Key, Label] = {label.key: label for label in config.data.declared_labels}
    if not config.features.preprocessing_fn:
        declared = (labels | _list_events(labels)).items()
        names_by_key |= {(*key, name): name for key, label in declared for name in label.expression.columns}
    names_by_key |= {("evaluation", *field): name for field, name in config.evaluation.columns()}
    added = [SAMPLING_WEIGHT] if config.data.sample.label else []
    if config.data.weight and not added:
        names_by_key[WEIGHT] = config.data.weight
    if config.model.list_column:
        names_by_key["model", "list_column"] = config.model.list_column
    names_by_key |= {(*WHERE, name): name for name in config.data.columns_of_where}
    monitoring = config.section("monitor")
    if monitoring is not None:
        # The key may be a column that only requests have.
        private = set(monitoring.private) - {monitoring.key}
        names_by_key |= {("monitor", "private", name): name for name in sorted(private)}
    unknown = {key: name for key, name in names_by_key.items() if name not in columns}
    # A header such as `terms and conditions` can also be parsed as an expression. Report it as a whole.
    of_headers = {key: label.text for key, label in labels.items() if column_name(label.text) in columns}
    unknown |= {key: of_headers[key[:-1]] for key in unknown if key[:-1] in of_headers}
    return [
        *(
            Problem(SAMPLE, f"adds the column {name!r}, which the data has already")
            for name in added
            if name in columns
        ),
        *(Problem(key, f"the data has no column {name!r}{_suggest(name, columns)}") for key, name in unknown.items()),
    ]


def _suggest(name: str, columns: Collection[str]) -> str:
    """Return a suggestion for an unknown name.

    If the name is the header of a column, suggest the normalized name, which does not contain spaces or accents.
    """
    known = column_name(name)
    return f"; here its name is {known!r}" if known in columns else did_you_mean(name, columns)


def check_dtypes(config: Config, dtypes: Mapping[str, Dtype]) -> list[Problem]:
    """Return a problem for every operation that does not accept the dtype of its column."""
    misfits = (
        Problem(
            ("features", *feature.key),
            f"{feature.op.op} takes {_dtype_list(feature.op.takes)}, and {name!r} holds {_WORDS[dtypes[name]]}",
        )
        for feature in config.features.declared
        for name in feature.columns
        if name in dtypes and dtypes[name] not in feature.op.takes
    )
    weight = config.data.weight
    if weight and dtypes.get(weight) == "bytes":
        return [Problem(WEIGHT, f"expected a column of numbers, and {weight!r} holds {_WORDS['bytes']}"), *misfits]
    # Every part of date_parts would report the same problem.
    return [*_check_label_dtypes(config, dtypes), *dict.fromkeys(misfits)]


def _check_label_dtypes(config: Config, dtypes: Mapping[str, Dtype]) -> Iterator[Problem]:
    """Yield a problem for every column that is a label and holds values that the task cannot predict."""
    task = config.data.task
    for label in config.data.declared_labels:
        name = label.expression.columns[0] if label.expression.is_column else ""
        if task == "multilabel" and dtypes.get(name) == "float":
            message = f"multilabel takes text or whole numbers, and {name!r} holds {_WORDS['float']}"
            yield Problem(label.key, f"{message}; set data.types to {{{name}: bytes}}")
        if task in ("regression", "survival") and dtypes.get(name) == "bytes":
            message = f"{task} predicts a number, and {name!r} holds {_WORDS['bytes']}"
            yield Problem(label.key, f"{message}; choose another label, or set data.types to {{{name}: float}}")


def _columns_read(config: Config) -> dict[Key, str]:
    """Return key → column name, for all places where the config names a column that features read."""
    crossed: dict[Key, str] = {
        ("features", "crosses", name, "columns", index): column
        for name, cross in config.features.crosses.items()
        for index, column in enumerate(cross.columns)
    }
    measured: dict[Key, str] = {
        ("features", *feature.key, name): name
        for feature in config.features.declared
        if isinstance(feature.op, GeoDistance)
        for name in feature.op.columns
    }
    return {("features", "columns", name): name for name in config.features.columns} | crossed | measured


_WORDS: Mapping[Dtype, str] = {"int": "whole numbers", "float": "numbers", "bytes": "text or bytes"}


def _dtype_list(dtypes: Collection[Dtype]) -> str:
    return " or ".join(_WORDS[dtype] for dtype in sorted(dtypes))


def _label(config: Config) -> Iterator[Problem]:
    """Yield labels that cannot be parsed, or that do not fit the task or the features."""
    labels: dict[Key, Label] = {label.key: label for label in config.data.declared_labels}
    for key, label in (labels | _list_events(labels)).items():
        try:
            parsed = label.expression
        except ValueError as error:
            yield Problem(key, str(error))
        else:
            yield from _check_label(config, key, parsed)


def _list_events(labels: Mapping[Key, Label]) -> dict[Key, Label]:
    """Return the event of the task survival by its key; empty for other tasks."""
    events = (label.event_label for label in labels.values() if label.event)
    return {event.key: event for event in events}


def _check_label(config: Config, at: Key, label: Expression) -> Iterator[Problem]:
    """Yield a label that does not fit the task, and features that reveal the label to the model.

    Args:
      config: Config to check.
      at: Key of the label in the config.
      label: Parsed label.
    """
    task = config.data.task
    if not label.is_column and task in ("multiclass", "multilabel"):
        yield Problem(at, f"an expression has two values or is a number, and task is {task}; received {label.text!r}")
    read = _columns_read(config)
    if read and task != "anomaly" and all(name in read.values() for name in label.columns):
        part = "is the label itself" if label.is_column else f"make up the whole label {label.text!r}"
        key = next(key for key, name in read.items() if name == label.columns[0])
        yield Problem(key, f"{', '.join(label.columns)} {part}, so the model would read the label; remove a column")


def _label_columns(config: Config) -> list[str]:
    """Return the columns of the labels; empty if a label cannot be parsed, which `_label` reports."""
    try:
        return [name for label in config.data.declared_labels for name in label.columns]
    except ValueError:
        return []


def _weight(config: Config) -> Iterator[Problem]:
    """Yield a problem if a label contains the weight, because rows would be weighted by what is predicted."""
    if config.data.weight in _label_columns(config):
        yield Problem(WEIGHT, f"expected a column that is not in the label, received {config.data.weight!r}; change it")


def _split(config: Config) -> Iterator[Problem]:
    """Yield a problem if rows are split by a hash of the label, because a split would lack some of its values."""
    label_columns = [name for name in _label_columns(config) if name in config.data.split.columns]
    if label_columns and config.data.split.by in ("hash", "group"):
        message = f"expected columns that are not in the label, received {label_columns[0]!r}; remove it"
        yield Problem(("data", "split", "columns"), message)


def _where(config: Config) -> Iterator[Problem]:
    """Yield the columns of `data.where` that `data.columns` does not read."""
    read = config.data.columns
    for name in config.data.columns_of_where:
        if read and name not in read:
            yield Problem(WHERE, f"expected columns that data.columns names, received {name!r}; add it there")


def _own_code(config: Config) -> Iterator[Problem]:
    """Yield settings that require a `run_fn` of the user, if the config does not contain one."""
    if config.features.preprocessing_fn and not config.model.run_fn:
        key = ("features", "preprocessing_fn")
        yield Problem(key, "features made by your own code need a model that reads them; give model.run_fn too")
    if not config.model.run_fn:
        run_fn_fields = {"evaluation": ("label_key", "preprocessing"), "training": ("eval_steps",)}
        for section, fields in run_fn_fields.items():
            for field in getattr(config, section).model_fields_set.intersection(fields):
                yield Problem((section, field), "requires a model.run_fn of your own; remove it")


def _metrics(config: Config) -> Iterator[Problem]:
    """Yield metrics, bounds, groups and fairness settings that do not fit the task or the model."""
    task, labels = config.data.task, [label.name for label in config.data.declared_labels if label.name]
    thresholds = dict(_thresholds(config))
    names_by_key: dict[Key, str] = {key: str(key[-1]) for key in thresholds}
    names_by_key |= {("evaluation", "metrics", index): name for index, name in enumerate(config.evaluation.metrics)}
    for key, name in names_by_key.items():
        label, metric_name = label_of(name)
        if label and label not in labels:
            hint = did_you_mean(label, labels)
            yield Problem(key, f"expected a metric, or one of data.labels before the slash, received {label!r}{hint}")
        elif task not in metric(name, task).tasks:
            article = "an" if task == "anomaly" else "a"
            yield Problem(key, f"{name} does not fit {article} {task} task; {', '.join(_list_metrics(task))} do")
        elif metric(name, task).forecasts and not (config.data.windows and key[0] == "evaluation"):
            yield Problem(key, f"{name} requires an evaluation of forecasts; set data.windows, or remove it")
        elif metric(name, task).grouped and not config.evaluation.group:
            yield Problem(key, f"{name} requires groups of rows; set evaluation.group to a column, such as the user's")
        elif message := _find_quantile_misfit(config, metric_name):
            yield Problem(key, message)
        elif metric_name == "cost" and not (config.evaluation.decide and config.evaluation.decide.cost):
            yield Problem(key, "expected the costs in evaluation.decide, as {cost: {fp: 1, fn: 5}}; add them")
    for key, threshold in thresholds.items():
        neither = label_of(str(key[-1]))[1].startswith(("interval_coverage", "popularity_at_"))
        if neither and (threshold.worse_by, threshold.worse_by_fraction) != (None, None):
            message = "neither a higher nor a lower value is better; expected min and max, received a bound of worse_by"
            yield Problem(key, message)
    if config.evaluation.group and task not in GROUP_METRICS:
        message = f"metrics of groups are those of a {' or a '.join(GROUP_METRICS)} task, and this one is {task}"
        yield Problem(("evaluation", "group"), message)
    if config.evaluation.group and not config.runtime.is_vectorised("Evaluator"):
        message = "requires an evaluation in record batches; remove it, or runtime.vectorised"
        yield Problem(("evaluation", "group"), message)
    if config.data.windows and not config.runtime.is_vectorised("Evaluator"):
        yield Problem(("data", "windows"), "requires an evaluation in record batches; remove runtime.vectorised")
    if config.evaluation.fairness and task != "binary":
        yield Problem(
            ("evaluation", "fairness"), f"rates of false positives are those of a binary task, and this one is {task}"
        )


def _list_metrics(task: Task) -> list[str]:
    """Return the metrics of a task, for an error message."""
    fitting = [
        name for name, known_metric in (*METRICS.items(), *RETRIEVAL_METRICS.items()) if task in known_metric.tasks
    ]
    return fitting + [
        name for name, known_metric, _ in NUMBERED_METRICS if task == "retrieval" and task in known_metric.tasks
    ]


def _importance(config: Config) -> Iterator[Problem]:
    """Yield bounds of the importance of columns that are not features."""
    read = config.features.columns_read
    for name in config.evaluation.max_importance:
        key = ("evaluation", "max_importance", name)
        if config.features.preprocessing_fn:
            yield Problem(key, "the columns that a preprocessing_fn of your own reads are not known; remove it")
        elif name not in read:
            yield Problem(key, f"{name!r} is no column of the features{did_you_mean(name, read)}")


def _decision(config: Config) -> Iterator[Problem]:
    """Yield a problem if the model cannot have the output `class`."""
    if config.evaluation.decide is None:
        return
    key = ("evaluation", "decide")
    if config.data.task != "binary":
        yield Problem(key, f"expected data.task binary, whose probability it compares, received {config.data.task}")
    elif config.model.run_fn:
        yield Problem(key, "expected a model of model.kind or model.build, received a model.run_fn; remove one of them")


def _thresholds(config: Config) -> Iterator[tuple[Key, Threshold]]:
    """Yield the key and the bounds of every metric with bounds. The key ends with the name of the metric."""
    for name, threshold in config.evaluation.thresholds.items():
        yield ("evaluation", "thresholds", name), threshold
    for slice_, thresholds in config.evaluation.slice_thresholds.items():
        for name, threshold in thresholds.items():
            yield ("evaluation", "slice_thresholds", slice_, name), threshold
    for node in config.optional_nodes():
        yield from node.list_thresholds(config)


def _find_quantile_misfit(config: Config, name: str) -> str | None:
    """Return the reason why a metric does not fit the quantiles that the model predicts; None if it fits."""
    quantile_metric, quantiles = metric(name), config.model.quantiles if config.model.loss == "quantile" else ()
    if quantile_metric.quantiles and len(quantiles) < (2 if name.startswith("interval") else 1):
        received = f"quantiles: {list(quantiles)}" if quantiles else f"loss: {config.model.loss or 'none'}"
        several = " of two quantiles or more" if name.startswith("interval") else ""
        return f"{name} requires model.loss: quantile{several}, received {received}; remove it"
    quantile = quantile_metric.options.get("quantile")
    if quantiles and quantile is not None and quantile not in quantiles:
        return f"expected one of model.quantiles, {', '.join(map(str, quantiles))}, received {quantile}; change it"
    return None
