"""Prepares the report's section on the trials of a search: their losses by step and by value, and a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from components.base.node import ReportSection
from components.tuner.result import FAILED, Trial

_LINES = 10
"""Maximum number of trials whose losses are drawn by step; the best are drawn."""
_TRIALS = 200
_CATEGORIES = 12
_LOG_RATIO = 30
"""Values are drawn on a logarithmic axis if the largest is this number of times the smallest."""


class Axis(NamedTuple):
    """The losses by the value of a field.

    Attributes:
      field: Name of the field.
      series: Numbers: (value, or its logarithm to the base 10, and loss) by number of steps.
      ranges: Other values: (value, lowest loss, (lowest loss, highest loss)).
      is_log: Whether the values are logarithms.
    """

    field: str
    series: dict[str, list[tuple[float, float]]]
    ranges: list[tuple[str, float, tuple[float, float]]]
    is_log: bool


def make_section(trials: Sequence[Trial]) -> ReportSection:
    """Return the section of a search, with the template `report_section.html`.

    Args:
      trials: All trials, the best first.
    """
    names = list(dict.fromkeys(name for trial in trials for name in trial.values))
    # A search without halving or early stopping measures each trial once.
    has_curves = any(len(trial.curve) > 1 for trial in trials)
    lines = {f"trial {trial.trial}": trial.curve for trial in trials if trial.curve and has_curves}
    rungs = sorted({step for trial in trials for step, _ in trial.rungs})
    values = {
        "trials": trials[:_TRIALS],
        "trials_left": max(0, len(trials) - _TRIALS),
        "names": names,
        "lines": dict(list(lines.items())[:_LINES]),
        "lines_left": max(0, len(lines) - _LINES),
        "rungs": rungs,
        "axes": [axis for name in names if (axis := _make_axis(name, trials)).series or axis.ranges],
        "counts": Counter(trial.state for trial in trials),
        "rows": [_prepare_values(trial, names) for trial in trials[:_TRIALS]],
    }
    return ReportSection("trials", "Trials", Path(__file__).with_suffix(".html"), values)


def _make_axis(name: str, trials: Sequence[Trial]) -> Axis:
    pairs = [
        (trial.values[name], trial.loss, trial.steps)
        for trial in trials
        if name in trial.values and trial.loss is not None and trial.state != FAILED
    ]
    numbers = [value for value, *_ in pairs if isinstance(value, (int, float))]
    if len(numbers) < len(pairs):
        losses: dict[str, list[float]] = {}
        for value, loss, _ in pairs:
            losses.setdefault(str(value), []).append(loss)
        rows = [(value, min(group), (min(group), max(group))) for value, group in losses.items()]
        return Axis(name, {}, sorted(rows, key=lambda row: row[1])[:_CATEGORIES], is_log=False)
    is_log = bool(numbers) and min(numbers) > 0 and max(numbers) >= _LOG_RATIO * min(numbers)
    series: dict[str, list[tuple[float, float]]] = {}
    # Losses after different numbers of steps cannot be compared.
    for value, loss, steps in sorted(pairs, key=lambda pair: (-(pair[2] or 0), pair[0])):
        key = "all steps" if steps is None else f"{steps:,} steps"
        series.setdefault(key, []).append((math.log10(value) if is_log else value, loss))
    return Axis(name, series, [], is_log)


def _prepare_values(trial: Trial, names: Sequence[str]) -> list[Any]:
    values = (trial.values.get(name, "") for name in names)
    return [f"{value:.4g}" if isinstance(value, float) else value for value in values]
