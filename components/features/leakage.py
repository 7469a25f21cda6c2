"""Find leakage: a column, or a sum of columns, that predicts the label nearly perfectly.

Columns that are known at prediction time rarely do. Every column is measured separately in a sample of rows: by the
order of its numbers, by the labels of rows with the same value, and by where it is missing. The sum finds a total and
its parts, if the label is a part of it. A column that predicts less than nearly perfectly is reported if all others
together, in boosted trees, predict much less. A rule that is learned from some rows is measured on other rows. The
bounds are high enough not to report strong columns: the best column of scikit-learn's breast cancer data has an AUC of
0.975, and the others together have 0.99.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.base.config_section import Task

ROWS = 50_000
"""Sufficient number of rows. More rows only take more time."""
FEWEST_ROWS, FEWEST_OF_CLASS = 500, 50
"""Minimum number of rows, and of rows per class. With fewer rows, chance or an easy task looks like leakage."""
NEARLY = 0.998
"""Minimum figure of a column that predicts the label nearly perfectly."""
STRONG, _SHARE_OF_OTHERS = 0.95, 0.2
"""Minimum figure of a column that predicts the label much better than all others together, and the maximum of its
distance from 1, as a share of theirs."""
_BOOSTED_ROWS, _BOOSTED_COLUMNS, _CATEGORIES = 10_000, 200, 255
"""Maximum number of rows and columns of the others, and of distinct texts that scikit-learn takes for categories."""
FILLED = 0.95
"""Minimum figure of a column whose presence alone predicts a class."""
ORDERED = 0.95
"""Minimum figure of an identifier in a binary task. In a regression, where a number may follow a trend, it is
`NEARLY`."""
_EXPECTED, _PART = 20, 0.1
"""Conditions to report rows that have (or lack) a value and all have the same label: the minimum number of other labels
that chance would give them, and their minimum share of all rows with that label."""
_BINS, _ROWS_OF_BIN, _DISTINCT = 256, 20, 1024
"""Maximum number of bins of a number, minimum number of rows per bin, and maximum number of distinct numbers that get
one bin per number."""
_DENSE = 50
"""Maximum range of an identifier's numbers, per row. It exceeds 1 because a sample lacks numbers."""

_MOST_SUMMED = 200
"""Maximum number of columns in a sum: those that correlate most with the label."""

Kind = Literal["value", "filled", "order", "sum", "strong"]
_Ints: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Leak:
    """A column that predicts the label, alone or in a sum.

    Attributes:
      column: Name of the column.
      kind: `value` if its values predict the label, `filled` if the presence of a value does, `order` if it is an
        identifier whose order does, `sum` if it does together with others, and `strong` if it predicts much better than
        all others together.
      figure: How well it predicts the label, from 0 to 1.
      bound: Figure from which the column is reported.
      why: Explanation with the figure.
    """

    column: str
    kind: Kind
    figure: float
    bound: float
    why: str

    def __str__(self) -> str:
        return f"column {self.column}: {self.why}"


@dataclass(frozen=True)
class Leakage:
    """The result of a search for leakage.

    Attributes:
      leaks: Columns that alone predict the label.
      unknown: Why columns could not be measured; None if they were.
    """

    leaks: tuple[Leak, ...] = ()
    unknown: str | None = None


def _find_obstacle(labels: _Floats, task: Task) -> str | None:
    """Return why columns cannot be measured with these labels; None if they can."""
    if len(labels) < FEWEST_ROWS:
        return f"{len(labels):,} rows of {FEWEST_ROWS:,}"
    counts = np.sort(np.unique(labels, return_counts=True)[1])
    if task != "regression" and (labels != np.round(labels)).any():
        return "labels are not classes"
    if len(counts) < 2:
        return "all labels are alike"
    if task == "binary" and counts[0] < FEWEST_OF_CLASS:
        return f"{counts[0]:,} rows with the rarer label of {FEWEST_OF_CLASS:,}"
    return None


def find(columns: Mapping[str, pa.Array], labels: _Floats, task: Task) -> Leakage:
    """Look for columns that alone predict the label.

    Args:
      columns: Column name → int, float, binary or text, null where missing; or lists, of which only the presence is
        used.
      labels: Finite numbers, shape [rows]: 0 or 1, the index of the class, or the number of a regression.
      task: Kind of prediction.
    """
    unknown = _find_obstacle(labels, task)
    if unknown:
        return Leakage(unknown=unknown)
    random = np.random.default_rng(0)
    first = random.permutation(len(labels)) % 2 == 0
    if task == "regression":
        target: _Numbers | _Classes = _Numbers(labels, first)
    else:
        target = _Classes(labels, first, task == "binary")
    figures: dict[str, float] = {}
    leaks = [leak for name, column in columns.items() for leak in _find_leak(name, column, target, figures)]
    leaking = {leak.column for leak in leaks}
    remaining = {name: column for name, column in columns.items() if name not in leaking}
    if task == "regression":
        # A column that alone predicts the label would be the sum.
        leaks += _find_sum(remaining, labels, first)
    strong = [name for name, figure in figures.items() if figure >= STRONG and name not in leaking]
    if strong:
        leaks += _find_strong(strong, figures, remaining, target)
    return Leakage(tuple(leaks))


def _find_leak(name: str, column: pa.Array, target: _Numbers | _Classes, figures: dict[str, float]) -> Iterator[Leak]:
    """Yield at most one leak of a column, the most specific one, and add the column's figure to `figures`."""
    present, numbers, codes = _read(column)
    if presence := target.measure_presence(present):
        yield Leak(name, "filled", *presence)
        return
    if codes is None:
        return
    figure = max(0.0 if numbers is None else target.measure_order(numbers), target.measure_codes(codes))
    figures[name] = figure
    measured = f"{target.measure} {_format_figure(figure)}"
    if numbers is not None and figure >= target.bound_of_order and _is_identifier(column, numbers):
        why = f"an identifier whose order predicts the label: {measured}"
        yield Leak(name, "order", figure, target.bound_of_order, why)
    elif figure >= NEARLY:
        yield Leak(name, "value", figure, NEARLY, f"it alone predicts the label: {measured}")


def _find_strong(
    strong: Sequence[str], figures: Mapping[str, float], columns: Mapping[str, pa.Array], target: _Numbers | _Classes
) -> Iterator[Leak]:
    """Yield the columns that predict the label much better than all others together.

    If no strong column does, they are compared with the columns that are not strong, because one that leaks may be in
    the table twice, as an amount and as a share.

    Args:
      strong: Columns to compare with the others.
      figures: Column → how well it predicts the label.
      columns: All columns that do not leak.
      target: The label.
    """
    features = {name: feature for name, column in columns.items() if (feature := _read_feature(column)) is not None}

    def compare(compared: Sequence[str], excluded: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Yield each column that is much better than all that are not excluded, and how well these predict."""
        kept = sorted(features.keys() - excluded, key=lambda name: (-figures[name], name))[:_BOOSTED_COLUMNS]
        # All others together predict about as well as the best of them, or better: most columns need no trees.
        candidates = [name for name in compared if kept and _is_much_better(figures[name], figures[kept[0]])]
        if candidates:
            matrix = np.column_stack([features[name][0] for name in kept])
            figure = max(0.0, target.measure_model(matrix, [features[name][1] for name in kept]))
            yield from ((name, figure) for name in candidates if _is_much_better(figures[name], figure))

    leaking = [pair for name in strong for pair in compare([name], [name])]
    for name, figure in leaking or list(compare(strong, strong)):
        others = "all other columns" if leaking else f"all columns other than {', '.join(strong)}"
        compared = f"{target.measure} {_format_figure(figures[name])}, against {_format_figure(figure)}"
        yield Leak(name, "strong", figures[name], STRONG, f"better than {others} together: {compared}")


def _is_much_better(figure: float, other: float) -> bool:
    return 1 - figure <= _SHARE_OF_OTHERS * (1 - other)


def _read_feature(column: pa.Array) -> tuple[_Floats, bool] | None:
    """Return the numbers or codes of a column, NaN where missing, and whether they are categories; None for lists."""
    _, numbers, codes = _read(column)
    if codes is None:
        return None
    if numbers is not None:
        values = _read_numbers(column)
        # scikit-learn takes NaN for a missing number, and refuses infinity.
        return np.where(np.isfinite(values), values, np.nan), False
    return np.where(codes < 0, np.nan, codes), bool(codes.max(initial=0) < _CATEGORIES)


def _find_sum(columns: Mapping[str, pa.Array], labels: _Floats, first: npt.NDArray[np.bool_]) -> Iterator[Leak]:
    """Yield the leak of the fewest columns whose weighted sum predicts the label, if there is one.

    The weights are fitted by least squares to the first half of the rows, and measured on the second half.
    """
    correlations = {name: abs(np.corrcoef(numbers, labels)[0, 1]) for name, numbers in _standardize(columns)}
    strongest = sorted(correlations, key=lambda name: -correlations[name])[:_MOST_SUMMED]
    if not strongest:
        return
    matrix = np.column_stack([numbers for _, numbers in _standardize({name: columns[name] for name in strongest})])

    def measure(chosen: _Ints) -> tuple[float, _Floats]:
        known, measured = (matrix[half][:, chosen] for half in (first, ~first))
        # Columns with a mean of 0 leave the intercept as it is.
        mean = known.mean(axis=0)
        weights = np.linalg.lstsq(known - mean, labels[first] - labels[first].mean(), rcond=None)[0]
        errors = labels[~first] - labels[first].mean() - (measured - mean) @ weights
        return 1 - float(np.square(errors).mean() / labels[~first].var()), weights

    figure, weights = measure(np.arange(len(strongest)))
    if figure < NEARLY:
        return
    order = np.argsort(-np.abs(weights), kind="stable")
    fewest = bisect.bisect_left(range(len(order) - 1), NEARLY, key=lambda last: measure(order[: last + 1])[0]) + 1
    figure, _ = measure(order[:fewest])
    name, *further = [strongest[at] for at in order[:fewest]]
    terms = f"a weighted sum of it and {', '.join(further)}" if further else "a linear function of it"
    why = f"{terms} predicts the label: share of the variance {_format_figure(figure)}"
    yield Leak(name, "sum", figure, NEARLY, why)


def _standardize(columns: Mapping[str, pa.Array]) -> Iterator[tuple[str, _Floats]]:
    """Yield columns of numbers that are not constant, with mean 0 and variance 1; a missing number becomes 0."""
    for name, column in columns.items():
        if _holds_numbers(column):
            numbers = _read_numbers(column)
            finite = np.isfinite(numbers)
            deviation = numbers[finite].std() if finite.any() else 0.0
            if 0 < deviation < np.inf:
                yield name, np.where(finite, (numbers - numbers[finite].mean()) / deviation, 0.0)


def _format_figure(value: float) -> str:
    # Round down, so that a figure below 1 does not look perfect.
    return f"{np.floor(value * 1e4) / 1e4:.4f}".rstrip("0").rstrip(".")


class _Ordered(NamedTuple):
    """The numbers of a column, sorted once.

    Attributes:
      distinct: The different finite numbers in ascending order, float64, shape [n].
      ranks: The index in `distinct` of the number of each row, int64, shape [rows]; -1 where it is missing.
    """

    distinct: _Floats
    ranks: _Ints

    @property
    def counts(self) -> _Ints:
        """The number of rows of each distinct number, shape [n]."""
        return np.bincount(self.ranks + 1, minlength=len(self.distinct) + 1)[1:]


def _read(column: pa.Array) -> tuple[npt.NDArray[np.bool_], _Ordered | None, _Ints | None]:
    """Return where a column has values, its numbers, and codes of its values, -1 where missing."""
    present = np.asarray(column.is_valid())
    type_ = column.type
    if pa.types.is_null(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return present, None, None
    if _holds_numbers(column):
        numbers = _read_numbers(column)
        present = np.isfinite(numbers)
        distinct, inverse = np.unique(numbers[present], return_inverse=True)
        ranks = np.full(len(numbers), -1, np.int64)
        ranks[present] = inverse
        ordered = _Ordered(distinct, ranks)
        return present, ordered, _encode_numbers(ordered)
    encoded = column.dictionary_encode()
    return present, None, np.asarray(pc.fill_null(encoded.indices, -1)).astype(np.int64)


def _holds_numbers(column: pa.Array) -> bool:
    return any(is_type(column.type) for is_type in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def _read_numbers(column: pa.Array) -> _Floats:
    """Return numbers as float64, and NaN where they are missing. The minimum of integers becomes 0."""
    return np.asarray(_subtract_least(column).cast(pa.float64(), safe=False).fill_null(float("nan")), np.float64)


def _subtract_least(column: pa.Array) -> pa.Array:
    """Subtract the minimum from integers, so that integers beyond 2**53 remain distinct as float64."""
    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return column
    ends = pc.min_max(column).as_py()
    return pc.subtract(column, ends["min"]) if ends["max"] - ends["min"] < 2**63 else column


def _encode_numbers(numbers: _Ordered) -> _Ints:
    """Return the bin of each row; -1 where the number is missing. Up to `_DISTINCT` numbers have a bin each."""
    if len(numbers.distinct) <= _DISTINCT:
        return numbers.ranks
    values = np.repeat(numbers.distinct, numbers.counts)
    bins = min(_BINS, max(1, len(values) // _ROWS_OF_BIN))
    edges = np.unique(np.quantile(values, np.arange(1, bins) / bins))
    # The last element is for the rank -1 of missing numbers.
    return np.append(np.searchsorted(edges, numbers.distinct, side="right"), -1)[numbers.ranks]


def _is_identifier(column: pa.Array, numbers: _Ordered) -> bool:
    """Return whether a column has a different whole number in each row, from a range that they nearly fill."""
    distinct = numbers.distinct
    if not pa.types.is_integer(column.type) or not len(distinct) or numbers.counts.max() > 1:
        return False
    return bool(distinct[-1] - distinct[0] < _DENSE * len(distinct))


class _Classes:
    """Measures how well columns predict classes.

    Args:
      labels: Classes; shape [rows].
      first: Mask of the first half of the rows; shape [rows]. A rule from one half is measured on the other half.
      binary: Whether the labels are 0 and 1.
    """

    def __init__(self, labels: _Floats, first: npt.NDArray[np.bool_], binary: bool) -> None:
        self._values, self._labels = np.unique(labels.astype(np.int64), return_inverse=True)
        self._counts = np.bincount(self._labels)
        self._first, self._binary = first, binary
        self.bound_of_order = ORDERED if binary else NEARLY
        self.measure = "AUC" if binary else "share of the possible gain in accuracy"

    def measure_presence(self, present: npt.NDArray[np.bool_]) -> tuple[float, float, str] | None:
        """Return figure, bound and explanation if the presence of a value predicts the label, otherwise None.

        This applies to binary tasks only. In other tasks, some classes may legitimately lack a column.
        """
        with_value = np.bincount(self._labels[present], minlength=len(self._counts))
        total, rows = int(with_value.sum()), len(self._labels)
        if not self._binary or total in (0, rows):
            return None
        share = with_value / self._counts
        area = 0.5 + abs(float(share[1] - share[0])) / 2
        if area >= FILLED:
            shares = f"a value in {share[1]:.1%} of the rows with label 1 and in {share[0]:.1%} of the others"
            return area, FILLED, f"whether it is missing predicts the label: {shares}, AUC {_format_figure(area)}"
        for counts, where in ((with_value, "it has a value"), (self._counts - with_value, "it is missing")):
            [having] = np.flatnonzero(counts) if np.count_nonzero(counts) == 1 else [-1]
            if having < 0 or counts[having] < _PART * self._counts[having]:
                continue
            if counts[having] * (1 - self._counts[having] / rows) >= _EXPECTED:
                words = f"{where} in {int(counts[having]):,} rows, all of them with label {int(self._values[having])}"
                return 1.0, FILLED, f"whether it is missing predicts the label: {words}"
        return None

    def measure_order(self, numbers: _Ordered) -> float:
        """Return the AUC of numbers in either direction, missing ones at either end; 0 for several classes."""
        if not self._binary:
            return 0.0
        missing_first = _count(numbers.ranks + 1, self._labels, len(numbers.distinct) + 1)
        areas = [_auc(*missing_first), _auc(*(np.roll(counts, -1) for counts in missing_first))]
        return max(*areas, *(1 - area for area in areas))

    def measure_codes(self, codes: _Ints) -> float:
        """Return how well the labels of rows with the same code predict the label."""
        halves = ((self._first, ~self._first), (~self._first, self._first))
        return float(np.mean([self._learn_and_measure(codes + 1, *half) for half in halves]))

    def measure_model(self, matrix: _Floats, are_categories: Sequence[bool]) -> float:
        """Return how well boosted trees predict the label.

        Args:
          matrix: Numbers and codes, NaN where missing; [rows, columns].
          are_categories: Which columns are codes.
        """
        # Imported here because few tables have a strong column.
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            categorical_features=list(are_categories), early_stopping=False, random_state=0
        )
        known, measured = _draw(self._first), _draw(~self._first)
        model.fit(matrix[known], self._labels[known])
        labels = self._labels[measured]
        if self._binary:
            _, ranks = np.unique(model.predict_proba(matrix[measured])[:, 1], return_inverse=True)
            return _auc(*_count(ranks, labels, len(labels)))
        constant = np.bincount(labels).max() / len(labels)
        right = (model.predict(matrix[measured]) == labels).mean()
        return float((right - constant) / (1 - constant)) if constant < 1 else 0.0

    def _learn_and_measure(self, codes: _Ints, known: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_]) -> float:
        """Learn the label per code from the known rows, and return how well this predicts the measured rows."""
        size, labels = int(codes.max()) + 1, self._labels
        if self._binary:
            positives, rows = _count(codes[known], labels[known], size)
            rates = (positives + labels[known].mean()) / (rows + 1)
            distinct, ranks = np.unique(rates, return_inverse=True)
            return _auc(*_count(ranks[codes[measured]], labels[measured], len(distinct)))
        pairs, counts = np.unique(codes[known] * len(self._values) + labels[known], return_counts=True)
        order = np.argsort(counts, kind="stable")
        best = np.full(size, self._counts.argmax())
        # Pairs are sorted by count, so the most frequent label of a code is assigned last.
        best[pairs[order] // len(self._values)] = pairs[order] % len(self._values)
        constant = np.bincount(labels[measured]).max() / measured.sum()
        right = (best[codes[measured]] == labels[measured]).mean()
        return float((right - constant) / (1 - constant)) if constant < 1 else 0.0


class _Numbers:
    """Measures how well columns predict the ranks of a regression's labels, as the explained share of the variance."""

    measure, bound_of_order = "share of the variance of the label's ranks", NEARLY

    def __init__(self, labels: _Floats, first: npt.NDArray[np.bool_]) -> None:
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        self._ranks, self._first = _compute_mean_ranks(inverse, counts), first

    def measure_presence(self, present: npt.NDArray[np.bool_]) -> None:
        """Return None, because presence cannot predict the ranks of all rows."""

    def measure_order(self, numbers: _Ordered) -> float:
        """Return the squared rank correlation; 0 if values are missing."""
        if numbers.ranks.min(initial=0) < 0 or len(numbers.distinct) < 2:
            return 0.0
        return float(np.corrcoef(_compute_mean_ranks(numbers.ranks, numbers.counts), self._ranks)[0, 1] ** 2)

    def measure_model(self, matrix: _Floats, are_categories: Sequence[bool]) -> float:
        """Return the share of the variance that boosted trees explain; see `_Classes.measure_model`."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(
            categorical_features=list(are_categories), early_stopping=False, random_state=0
        )
        known, measured = _draw(self._first), _draw(~self._first)
        model.fit(matrix[known], self._ranks[known])
        errors = self._ranks[measured] - model.predict(matrix[measured])
        return 1 - float(np.square(errors).mean() / self._ranks[measured].var())

    def measure_codes(self, codes: _Ints) -> float:
        """Return the share of the variance that the means of rows with the same code explain."""
        codes = codes + 1
        size, predicted = int(codes.max()) + 1, np.empty(len(codes))
        for known in (self._first, ~self._first):
            mean = self._ranks[known].mean()
            sums = np.bincount(codes[known], self._ranks[known], size) + mean
            predicted[~known] = (sums / (np.bincount(codes[known], minlength=size) + 1))[codes[~known]]
        return 1 - float(np.square(predicted - self._ranks).mean() / self._ranks.var())


def _draw(half: npt.NDArray[np.bool_]) -> _Ints:
    """Return the numbers of some rows of a half, drawn at random."""
    rows = np.flatnonzero(half)
    return rows if len(rows) <= _BOOSTED_ROWS else np.random.default_rng(0).choice(rows, _BOOSTED_ROWS, replace=False)


def _compute_mean_ranks(inverse: _Ints, counts: _Ints) -> _Floats:
    """Return the rank of each row, from 1; rows with the same number have the mean of their ranks."""
    ranks: _Floats = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _count(groups: _Ints, labels: _Ints, size: int) -> tuple[_Floats, _Floats]:
    """Return the number of rows with label 1, and of all rows, in each of `size` groups."""
    return np.bincount(groups, labels, size), np.bincount(groups, minlength=size).astype(np.float64)


def _auc(positives: _Floats, rows: _Floats) -> float:
    """Return the area under the ROC curve of groups of rows, in ascending order of their scores; 0.5 for one class."""
    negatives = rows - positives
    pairs = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - negatives / 2
    return float((positives * below).sum() / pairs) if pairs else 0.5
