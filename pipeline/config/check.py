"""What has to hold between the sections of a config, and between a config and the columns of its data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from components.evaluator.config import METRICS
from components.features import expression
from components.features.config import Dtype
from components.names import column_name, did_you_mean
from pipeline.config.model import Config
from pipeline.config.problems import Problem

LABEL = ("data", "label")


def of_config(config: Config) -> list[Problem]:
    """Problems that the config shows by itself."""
    return [*_label(config), *_own_code(config), *_metrics(config)]


def of_columns(config: Config, columns: Collection[str]) -> list[Problem]:
    """Names in the config that are no column of the data."""
    named: dict[tuple[str | int, ...], str] = {("features", "columns", name): name for name in config.features.columns}
    if not config.features.preprocessing_fn:
        named |= {(*LABEL, name): name for name in expression.parse(config.data.label).columns}
    named |= {("evaluation", *field): name for field, name in config.evaluation.columns()}
    return [
        Problem(key, f"the data has no column {name!r}{_called(name, columns)}")
        for key, name in named.items()
        if name not in columns
    ]


def _called(name: str, columns: Collection[str]) -> str:
    """What to write instead of a name: a header with spaces or accents is known by another one."""
    known = column_name(name)
    return f"; it is called {known!r} here" if known in columns else did_you_mean(name, columns)


def of_dtypes(config: Config, dtypes: Mapping[str, Dtype]) -> list[Problem]:
    """Operations that do not take what their column holds, as far as the columns' dtypes are known."""
    return [
        Problem(
            ("features", "columns", name, index, op.op),
            f"{op.op} takes {_words(op.takes)}, and {name!r} holds {_WORDS[dtypes[name]]}",
        )
        for name, ops in config.features.columns.items()
        for index, op in enumerate(ops)
        if name in dtypes and dtypes[name] not in op.takes
    ]


_WORDS: Mapping[Dtype, str] = {"int": "whole numbers", "float": "numbers", "bytes": "text or bytes"}


def _words(dtypes: Collection[Dtype]) -> str:
    return " or ".join(_WORDS[dtype] for dtype in sorted(dtypes))


def _label(config: Config) -> Iterator[Problem]:
    try:
        label = expression.parse(config.data.label)
    except ValueError as error:
        yield Problem(LABEL, str(error))
        return
    if not label.is_column and config.data.task == "multiclass":
        yield Problem(
            LABEL, f"an expression has two values or is a number, and task is multiclass; received {label.text!r}"
        )
    if config.features.columns and all(name in config.features.columns for name in label.columns):
        told = "is the label itself" if label.is_column else f"make up the whole label {label.text!r}"
        key = ("features", "columns", label.columns[0])
        yield Problem(key, f"{', '.join(label.columns)} {told}, so the model would read the answer; leave a column out")


def _own_code(config: Config) -> Iterator[Problem]:
    if config.features.preprocessing_fn and not config.model.run_fn:
        key = ("features", "preprocessing_fn")
        yield Problem(key, "features made by your own code need a model that reads them; give model.run_fn too")
    if not config.model.run_fn:
        own = {"evaluation": ("label_key", "preprocessing"), "training": ("eval_steps",)}
        for section, fields in own.items():
            for field in getattr(config, section).model_fields_set.intersection(fields):
                yield Problem((section, field), "has a meaning with your own model.run_fn only; leave it out")


def _metrics(config: Config) -> Iterator[Problem]:
    task = config.data.task
    fitting = [name for name, metric in METRICS.items() if task in metric.tasks]
    named: dict[tuple[str | int, ...], str] = {
        ("evaluation", "thresholds", name): name for name in config.evaluation.thresholds
    }
    named |= {("evaluation", "metrics", index): name for index, name in enumerate(config.evaluation.metrics)}
    for slice_, thresholds in config.evaluation.slice_thresholds.items():
        named |= {("evaluation", "slice_thresholds", slice_, name): name for name in thresholds}
    for key, name in named.items():
        if name not in fitting:
            yield Problem(key, f"{name} does not fit a {task} task; {', '.join(fitting)} do")
    if config.evaluation.fairness and task != "binary":
        yield Problem(
            ("evaluation", "fairness"), f"rates of false positives are those of a binary task, and this one is {task}"
        )
