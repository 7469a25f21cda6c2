"""Compares two samples of rows column by column: distances, and tests whether the distributions differ.

    distance  of texts the largest difference between two shares (L-infinity); of numbers the Jensen-Shannon divergence,
              in bits, over the deciles of the reference. Both are those of TFDV's skew and drift comparators.
    psi       the population stability index over the same bins: the sum of (q - p) ln(q / p).
    p_value   of numbers by the Kolmogorov-Smirnov test, of texts and few numbers by the chi-squared test of
              homogeneity; corrected for the number of columns.

A distance alone is large by chance in small samples, and in large ones a test finds differences that do not matter; so
both are needed.

Sources: J. Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37(1), 1991. N. Siddiqi,
Credit Risk Scorecards, Wiley, 2006 (PSI). J. Hodges, The Significance Probability of the Smirnov Two-Sample Test,
Arkiv för Matematik 3, 1958. S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statistics 6,
1979.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from components.data.missing import nan_to_null
from components.monitor.result import Bin, ColumnComparison

_FEW = 20
"""A column of numbers with at most so many different ones is compared value by value."""
_TEXTS = 50
"""The most frequent texts that have a bin of their own: of both samples together, because a test with bins that were
chosen by one of the samples finds differences too often."""
_LEAST_SHARE = 1e-4
"""For PSI, whose terms have no limit for an empty bin."""

Columns = Mapping[str, pa.Array]
"""Name → a value for each row, null or NaN without one: a number, or a text as binary or string."""


def compare(reference: Columns, sample: Columns) -> list[ColumnComparison]:
    """Compares the columns of the reference, the most different one first; outputs of several values are left out.

    Args:
      reference: the rows that the model was trained on, or those of an earlier window.
      sample: other rows; at least one.
    """
    compared = [
        _compare(name, column, sample.get(name)) for name, column in reference.items() if not column.type.num_fields
    ]
    corrected = _holm([each.p_value for each in compared])
    compared = [replace(each, p_value=p_value) for each, p_value in zip(compared, corrected, strict=True)]
    return sorted(compared, key=lambda each: -1.0 if each.distance is None else each.distance, reverse=True)


def is_text(column: pa.Array) -> bool:
    """Whether a column has texts, and not numbers."""
    return any(test(column.type) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


def _compare(name: str, reference: pa.Array, sample: pa.Array | None) -> ColumnComparison:
    sample = pa.nulls(1, reference.type) if sample is None else nan_to_null(sample)
    reference = nan_to_null(reference)
    missing = reference.null_count / len(reference), sample.null_count / len(sample)
    one, other = reference.drop_null(), sample.drop_null()
    absent = _homogeneity(np.array([[len(one), reference.null_count], [len(other), sample.null_count]]))
    if not len(one) or not len(other):
        return ColumnComparison(name, None, None, absent, missing, None, ())
    binned = _Binned.of(one, other)
    expected, received = binned.shares
    # Twice, because two tests are made of a column: of its values and of the missing ones.
    p_value = min(1.0, 2 * min(absent, binned.p_value))
    bins = map(Bin, binned.labels, expected.tolist(), received.tolist())
    return ColumnComparison(name, binned.distance, _psi(expected, received), p_value, missing, binned.new, tuple(bins))


@dataclass(frozen=True)
class _Binned:
    """The values of two samples, counted in the same bins.

    Attributes:
      labels: of the bins.
      counts: of the values of the reference, and of the sample; [2, bins].
      distance: of the two distributions.
      p_value: of the test.
      new: share of the sample's values that the reference does not have.
    """

    labels: list[str]
    counts: npt.NDArray[np.int64]
    distance: float
    p_value: float
    new: float | None = None

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """[2, bins]."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    @classmethod
    def of(cls, reference: pa.Array, sample: pa.Array) -> _Binned:
        """Counts values that are not missing."""
        if is_text(reference):
            return cls._of_texts(reference, sample)
        one, other = (np.asarray(each).astype(np.float64) for each in (reference, sample))
        values = np.unique(np.concatenate([one, other]))
        if len(values) <= _FEW:
            counts = np.stack(
                [np.bincount(np.searchsorted(values, each), minlength=len(values)) for each in (one, other)]
            )
            return cls([f"{value:.6g}" for value in values], counts, _divergence(counts), _homogeneity(counts))
        edges = np.unique(np.quantile(one, np.arange(1, 10) / 10))
        counts = np.stack(
            [np.bincount(np.searchsorted(edges, each), minlength=len(edges) + 1) for each in (one, other)]
        )
        p_value = float(stats.ks_2samp(one, other, method="asymp").pvalue)
        return cls([*(f"{edge:.6g}" for edge in edges), "above"], counts, _divergence(counts), p_value)

    @classmethod
    def _of_texts(cls, reference: pa.Array, sample: pa.Array) -> _Binned:
        reference, sample = reference.cast(pa.large_binary()), sample.cast(pa.large_binary())
        counted = pc.value_counts(pa.concat_arrays([reference, sample]))
        texts, frequencies = counted.field(0).to_pylist(), counted.field(1).to_pylist()
        top = [text for _, text in sorted(zip((-each for each in frequencies), texts, strict=True))[:_TEXTS]]
        values = pa.array(top, pa.large_binary())
        indices = [np.asarray(pc.index_in(each, value_set=values).fill_null(len(top))) for each in (reference, sample)]
        counts = _counts(indices, len(top) + 1)
        shares = counts / counts.sum(axis=1, keepdims=True)
        distance = float(np.abs(shares[0] - shares[1]).max())
        new = 1 - float(np.asarray(pc.is_in(sample, value_set=reference.unique())).mean())
        labels = [*(text.decode(errors="replace") for text in top), "others"]
        return cls(labels, counts, distance, _homogeneity(counts), new)


def _counts(indices: Sequence[npt.NDArray[np.intp]], bins: int) -> npt.NDArray[np.int64]:
    """Counts each sample's values by the index of their bin; [samples, bins]."""
    return np.stack([np.bincount(each, minlength=bins) for each in indices])


def _divergence(counts: npt.NDArray[np.int64]) -> float:
    """The Jensen-Shannon divergence, in bits."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares.mean(axis=0)
    terms = np.where(shares > 0, shares * np.log2(np.where(shares > 0, shares, 1) / np.where(mean > 0, mean, 1)), 0.0)
    return float(np.clip(terms.sum() / 2, 0.0, 1.0))


def _psi(expected: npt.NDArray[np.float64], received: npt.NDArray[np.float64]) -> float:
    p, q = (np.maximum(each, _LEAST_SHARE) for each in (expected, received))
    return float(((q - p) * np.log(q / p)).sum())


def _homogeneity(counts: npt.NDArray[np.int64]) -> float:
    """The p-value of the chi-squared test for a table of two rows; bins with few values are merged."""
    total = counts.sum(axis=0)
    expected = counts.sum(axis=1, keepdims=True) * total / max(total.sum(), 1)
    # The approximation needs about five expected values in each cell.
    small = expected.min(axis=0) < 5
    table = np.column_stack([counts[:, ~small], counts[:, small].sum(axis=1)]) if small.any() else counts
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or (table.sum(axis=1) == 0).any():
        return 1.0
    return float(stats.chi2_contingency(table, correction=False)[1])


def _holm(p_values: list[float]) -> list[float]:
    """Holm's correction: the probability of any false alarm among all columns is at most the level."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(each) for each in corrected]
