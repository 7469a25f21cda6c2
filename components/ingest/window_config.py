"""The `data.windows` section of the config: features of the past of time series, and the steps to forecast."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from components.base.config_section import Section, Task, Texts
from components.base.errors import InputError
from components.base.names import did_you_mean
from components.data.forecast_columns import NAIVE, SCALE

HORIZON, ORIGIN = "horizon", "origin"
"""Columns with the number of steps from the origin to the row's time, and with the time of the origin."""
STATISTICS = ("mean", "std", "min", "max")
EVERY = re.compile(r"([1-9]\d*)\s*(s|m|h|d|w|mo|y)?")
"""Matches a step: a number and its unit. Months and years do not have a fixed length."""


def _check_every(value: Any) -> Any:
    if not isinstance(value, bool) and EVERY.fullmatch(str(value).strip()):
        return str(value).strip()
    raise ValueError(
        f"expected a step such as 15m, 1h, 1d, 1w, 1mo or 1y, or a whole number in the unit of the column, "
        f"received {value!r}"
    )


def _expand_horizon(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"expected at least 1 step, received {value}")
        return tuple(range(1, value + 1))
    return value


def _check_distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    if repeated := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"expected every number once, received {repeated[0]} several times")
    return tuple(sorted(values))


Every = Annotated[str, BeforeValidator(_check_every, json_schema_input_type=str | PositiveInt)]
Steps = Annotated[tuple[PositiveInt, ...], AfterValidator(_check_distinct)]
Horizon = Annotated[
    tuple[PositiveInt, ...],
    BeforeValidator(_expand_horizon, json_schema_input_type=PositiveInt | tuple[PositiveInt, ...]),
    Field(min_length=1),
    AfterValidator(_check_distinct),
]


class RollingConfig(Section):
    """Statistics of the last steps, up to and including the origin. Missing values are ignored."""

    mean: Steps = ()
    """Numbers of steps, such as [7, 28], over which the mean is computed."""
    std: Annotated[tuple[Annotated[int, Field(ge=2)], ...], AfterValidator(_check_distinct)] = ()
    """Numbers of steps over which the standard deviation of a sample is computed; missing with fewer than two values.
    """
    min: Steps = ()
    """Numbers of steps over which the minimum is computed."""
    max: Steps = ()
    """Numbers of steps over which the maximum is computed."""


class WindowsConfig(Section):
    """Forecasts of time series. The files have one row per series and time. Every row that is written is an origin of
    a series, which is a step with a known label, and one of the next steps, whose label is forecast.
    """

    by: Texts = ()
    """Columns that identify a series, such as the store. By default, all rows are one series."""
    time: str = Field(min_length=1)
    """Column of the time: ISO 8601 texts, or numbers in `data.split.unit`."""
    every: Every | None = None
    """Distance of two steps: 15m, 1h, 1d, 1w, 1mo or 1y, or a whole number in the unit of the column. By default, the
    most frequent difference of two times that follow each other in a series."""
    lags: Steps = ()
    """Past values that become features: `sales_lag_1` is the value at the origin, `sales_lag_7` the value six steps
    before it."""
    rolling: RollingConfig = RollingConfig()
    """Statistics of the past that become features: `sales_mean_7` is the mean of the seven steps up to the origin."""
    horizon: Horizon
    """Steps to forecast: 7 for the next seven steps, or a list such as [1, 7]. The column `horizon` contains the number
    of steps between origin and time."""
    of: Texts = ()
    """Numeric columns whose past is used. By default, the label."""
    known: Texts = ()
    """Columns that are known in advance, such as a promotion. They have their value at the time that is forecast; other
    columns have their value at the origin."""
    season: PositiveInt = 1
    """Number of steps of a season, such as 7 for days with a weekly pattern. The model must be better than the forecast
    that repeats the last season. By default, this is the last value."""

    @model_validator(mode="after")
    def _check_roles(self) -> WindowsConfig:
        keys = (*self.by, self.time)
        for field in ("of", "known"):
            if shared := [name for name in getattr(self, field) if name in keys]:
                raise ValueError(f"{field}: expected columns other than by and time, received {shared[0]!r}")
        if repeated := [name for name, count in Counter(keys).items() if count > 1]:
            raise ValueError(f"expected different columns in by and time, received {repeated[0]!r} twice")
        return self

    @property
    def named(self) -> Iterator[tuple[str, str]]:
        """The columns that the section names, as (field, column)."""
        fields = {"by": self.by, "time": (self.time,), "of": self.of, "known": self.known}
        return ((field, name) for field, names in fields.items() for name in names)


class IngestedWindows(WindowsConfig):
    """The section with the other columns that ExampleGen needs."""

    label: str
    """Column of the label."""
    weight: str | None = None
    """Column of the weight, which has its value at the time that is forecast, as the label has."""

    @property
    def past(self) -> tuple[str, ...]:
        """The columns whose past is used."""
        return self.of or (self.label,)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of the past, in the order in which they are computed."""
        return tuple(itertools.chain.from_iterable(_name_features(self, name) for name in self.past))

    @property
    def added(self) -> tuple[str, ...]:
        """Names of all columns that the rows have in addition to the columns of the files."""
        return (HORIZON, ORIGIN, NAIVE, SCALE, *self.features)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of the files that windows need."""
        return tuple(dict.fromkeys((*self.by, self.time, self.label, *self.past, *self.known)))

    @property
    def moved(self) -> tuple[str, ...]:
        """The columns, except for label and time, that have their value at the time that is forecast."""
        return tuple(dict.fromkeys((*self.known, *([self.weight] if self.weight else []))))

    def check_columns(self, names: Sequence[str]) -> None:
        """Check the columns of the files.

        Raises:
          InputError: If a column is missing, or has the name of a column that is added.
        """
        for field, name in (*self.named, ("label", self.label)):
            if name not in names:
                where = "data.label" if field == "label" else f"data.windows.{field}"
                raise InputError(
                    f"{where}: there is no column {name!r}{did_you_mean(name, names)}", "name columns of the data"
                )
        if shared := [name for name in self.added if name in names]:
            raise InputError(
                f"data.windows adds the column {shared[0]!r}, and the data has it already",
                "rename that column of the data, or leave it out with data.columns",
            )


def _name_features(config: WindowsConfig, name: str) -> Iterator[str]:
    yield from (f"{name}_lag_{lag}" for lag in config.lags)
    for statistic in STATISTICS:
        yield from (f"{name}_{statistic}_{steps}" for steps in getattr(config.rolling, statistic))


def set_split(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the `data` section with the split of forecasts, which is by time."""
    windows, split = values.get("windows"), values.get("split")
    time = windows.get("time") if isinstance(windows, dict) else getattr(windows, "time", None)
    if time is None or not (split is None or isinstance(split, dict)) or (split or {}).get("by", "time") != "time":
        return values
    return {**values, "split": {"by": "time", "columns": [time], **(split or {"train": 2, "eval": 1})}}


def check_windows(data: Any) -> IngestedWindows | None:
    """Check the section against the other fields of `data`, and return it with the columns of label and weight.

    Args:
      data: The `data` section, a components.ingest.config.DataConfig.

    Raises:
      ValueError: If the fields cannot be combined.
    """
    windows: WindowsConfig | None = data.windows
    if windows is None:
        return None
    task: Task = data.task
    parsed = data.declared_labels[0].expression
    if task != "regression" or data.label is None or not parsed.is_column:
        received = "several labels" if data.label is None else f"{data.label!r} with task {task}"
        raise ValueError(f"windows: expected a column of numbers as label, with task regression, received {received}")
    [label] = parsed.columns
    for field, name in windows.named:
        if name == label and field != "of":
            raise ValueError(f"windows.{field}: expected a column other than the label, received {name!r}; remove it")
    if data.split.by != "time" or data.split.columns != (windows.time,):
        raise ValueError(
            f"split: expected by: time with the column {windows.time!r} of windows, since a split of other kinds would "
            f"train on the future of rows that judge the model, received by: {data.split.by} with "
            f"{list(data.split.columns)}; remove by and columns"
        )
    if label in data.columns_of_where:
        raise ValueError(
            f"where: expected columns other than the label {label!r}, whose steps windows needs; remove it"
        )
    if data.format == "images" or data.images.path_column is not None:
        raise ValueError("windows: expected a table without images; remove windows or images")
    fields = {name: getattr(windows, name) for name in WindowsConfig.model_fields}
    return IngestedWindows(**fields, label=label, weight=data.weight)
