"""Finds columns that a model predicts equally well without: their importance is inside the noise, also together.

The importance of a column is inside the noise if the hypothesis that the increase of the loss is 0 or less is not
rejected at 5 %, with Holm's correction for the number of columns. Without it, one of twenty columns of pure noise would
look important. Columns with the same information hide each other's importance: if each of two copies is shuffled
alone, the model still reads the other one. Therefore columns are also shuffled together, and a set of columns is
unneeded only if

- the common increase is inside the noise, too, and
- the upper end of its 95 % interval is small (a test of non-inferiority), so that few rows, which have wide intervals,
  do not make columns unneeded: at most 2 % of the increase with all columns shuffled, which is small for a model that
  hardly predicts, and at most 5 % of the loss, which is small for a model that predicts well.

Sources: L. Breiman, Random forests, Machine Learning 45, 2001 (permutation importance); B. Gregorutti, B. Michel and
P. Saint-Pierre, Grouped variable importance with random forests, Computational Statistics & Data Analysis 90, 2015
(columns that are permuted together); S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian
Journal of Statistics 6, 1979; G. Piaggio et al., Reporting of noninferiority and equivalence randomized trials, JAMA
308, 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from scipy import special

from components.evaluator.importance import ColumnImportance, ColumnSelection, Estimate
from components.evaluator.intervals import Z

SHARE, SHARE_OF_LOSS = 0.02, 0.05
"""Largest upper end of a common increase, as a share of the increase with all columns shuffled, and of the loss."""
_LEVEL = 0.05
"""Probability that any column without an effect is counted as important."""


def select_columns(
    importances: Sequence[ColumnImportance],
    loss: float,
    needed: Mapping[str, str],
    measure: Callable[[Sequence[str]], Estimate],
) -> ColumnSelection:
    """Find the largest set of unneeded columns that a greedy search finds.

    The columns inside the noise are tried together. A set that does not pass is divided into the half that is more
    likely noise and the other half, which are tried one after the other along with the columns that passed. Of two
    copies, the less important one passes.

    Args:
      importances: The importance of all columns.
      loss: Mean loss of the model.
      needed: Columns that must not be proposed → the reason.
      measure: Function that shuffles columns together and returns the increase of the mean loss. It is called at most
        `len(importances) + 1` times.
    """
    inside = find_inside_noise(importances)
    needed_inside = {column.column: needed[column.column] for column in inside if column.column in needed}
    candidates = [column.column for column in inside if column.column not in needed]
    if not candidates:
        return ColumnSelection(kept=needed_inside)
    limit = min(SHARE * measure([column.column for column in importances]).value, SHARE_OF_LOSS * loss)
    if limit <= 0:
        reason = "the model does not predict better than with the values of other rows in all columns"
        return ColumnSelection(kept={**needed_inside, **dict.fromkeys(candidates, reason)})
    search = _Search(measure, limit, _LEVEL / len(inside), budget=len(importances))
    search.try_columns(candidates)
    return ColumnSelection(tuple(search.passed), search.loss, limit, {**needed_inside, **search.kept})


def find_inside_noise(importances: Sequence[ColumnImportance]) -> list[ColumnImportance]:
    """Return the columns whose importance is inside the noise, those that are most likely noise first."""
    by_probability = sorted(importances, key=lambda column: (_compute_probability(column.loss), column.column))
    important = 0
    while important < len(by_probability):
        # Holm's procedure rejects hypotheses in ascending order of their probability until one is not rejected.
        if _compute_probability(by_probability[important].loss) > _LEVEL / (len(by_probability) - important):
            break
        important += 1
    return sorted(by_probability[important:], key=lambda column: (-_compute_probability(column.loss), column.column))


def _compute_probability(loss: Estimate) -> float:
    """Return the probability of an increase this large if the expected increase is 0."""
    if loss.interval is None:
        return 1.0
    half = (loss.interval[1] - loss.interval[0]) / 2
    if half <= 0:
        return 0.0 if loss.value > 0 else 1.0
    return float(special.ndtr(-loss.value / half * Z))


class _Search:
    """The greedy search.

    Args:
      measure: See `select_columns`.
      limit: Largest upper end of the interval of a common increase.
      level: Probability below which a common increase is not inside the noise.
      budget: Maximum number of calls of `measure`.

    Attributes:
      passed: Columns that were shuffled together and passed.
      loss: Their common increase; None without columns.
      kept: Columns that did not pass → the reason.
    """

    def __init__(self, measure: Callable[[Sequence[str]], Estimate], limit: float, level: float, budget: int) -> None:
        self._measure, self._limit, self._level, self._budget = measure, limit, level, budget
        self.passed: list[str] = []
        self.loss: Estimate | None = None
        self.kept: dict[str, str] = {}

    def try_columns(self, columns: Sequence[str]) -> None:
        """Add columns to those that passed, or their halves if they do not pass as a whole."""
        if not self._budget:
            self.kept.update(dict.fromkeys(columns, "not tried, because the number of predictions is limited"))
            return
        self._budget -= 1
        loss = self._measure([*self.passed, *columns])
        if self._is_inside_noise(loss) and loss.interval and loss.interval[1] <= self._limit:
            self.passed += columns
            self.loss = loss
        elif len(columns) == 1:
            self.kept[columns[0]] = self._explain(loss)
        else:
            middle = (len(columns) + 1) // 2
            self.try_columns(columns[:middle])
            self.try_columns(columns[middle:])

    def _is_inside_noise(self, loss: Estimate) -> bool:
        return _compute_probability(loss) > self._level

    def _explain(self, loss: Estimate) -> str:
        low, high = loss.interval or (loss.value, loss.value)
        together = "with the unneeded columns" if self.passed else "alone"
        effect = f"shuffled {together}, it increases the loss by {loss.value:.4g} ({low:.4g} to {high:.4g})"
        limit = f"may be above {self._limit:.4g}" if self._is_inside_noise(loss) else "is above 0"
        return f"{effect}, which {limit}"
