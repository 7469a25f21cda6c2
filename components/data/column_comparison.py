"""Compare two samples of rows column by column: measure distances, and test whether the distributions differ.

Three figures are computed for each column:

    distance  For text, the largest difference between the shares of a value (L-infinity). For numbers, the
              Jensen-Shannon divergence in bits over the deciles of the reference. TFDV's skew and drift comparators
              compute the same two distances.
    psi       The population stability index over the same bins: the sum of (q - p) ln(q / p).
    p_value   For numbers, the p-value of the Kolmogorov-Smirnov test. For text, and for numbers with few distinct
              values, the p-value of the chi-squared test of homogeneity. It is corrected for the number of columns.

A column has drifted only if both the distance and the test say so. In a small sample the distance alone can be large by
chance. In a large sample the test alone detects differences that do not matter.

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
from components.results.column_comparison import Bin, ColumnComparison

_MAX_DISCRETE_VALUES = 20
"""A numeric column with at most this number of distinct values is compared value by value, not by quantiles."""
_MAX_TEXT_BINS = 50
"""Number of most frequent texts that get a separate bin. They are counted in both samples together, because a test
whose bins were chosen from only one of the samples reports differences too often."""
_MIN_SHARE = 1e-4
"""Lower limit of a bin's share in the PSI, because the logarithm is unbounded for an empty bin."""

Columns = Mapping[str, pa.Array]
"""Name → one value per row: a number, or a text as binary or string. A missing value is null or NaN."""


def compare(reference: Columns, sample: Columns) -> list[ColumnComparison]:
    """Compare the columns of a sample with the same columns of a reference.

    Columns with several values per row are skipped.

    Args:
      reference: Columns of the training rows, or of an earlier window. At least one row.
      sample: Columns of the rows to compare. At least one row. A column that it lacks counts as missing in every row.

    Returns:
      One comparison per column, in descending order of the distance.
    """
    comparisons = [
        _compare_column(name, column, sample.get(name))
        for name, column in reference.items()
        if not column.type.num_fields
    ]
    corrected = _correct_by_holm([comparison.p_value for comparison in comparisons])
    comparisons = [
        replace(comparison, p_value=p_value) for comparison, p_value in zip(comparisons, corrected, strict=True)
    ]
    return sorted(
        comparisons,
        key=lambda comparison: -1.0 if comparison.distance is None else comparison.distance,
        reverse=True,
    )


def is_text(column: pa.Array) -> bool:
    """Return whether a column contains text rather than numbers."""
    return any(test(column.type) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


def _compare_column(name: str, reference: pa.Array, sample: pa.Array | None) -> ColumnComparison:
    sample = pa.nulls(1, reference.type) if sample is None else nan_to_null(sample)
    reference = nan_to_null(reference)
    missing = reference.null_count / len(reference), sample.null_count / len(sample)
    reference_values, sample_values = reference.drop_null(), sample.drop_null()
    missing_p_value = _test_homogeneity(
        np.array([[len(reference_values), reference.null_count], [len(sample_values), sample.null_count]])
    )
    if not len(reference_values) or not len(sample_values):
        return ColumnComparison(name, None, None, missing_p_value, missing, None, ())
    histograms = _Histograms.count(reference_values, sample_values)
    expected, received = histograms.shares
    # Bonferroni's correction for two tests per column: one of its values, one of the number of missing values.
    p_value = min(1.0, 2 * min(missing_p_value, histograms.p_value))
    bins = map(Bin, histograms.labels, expected.tolist(), received.tolist())
    psi = _compute_psi(expected, received)
    return ColumnComparison(name, histograms.distance, psi, p_value, missing, histograms.new, tuple(bins))


@dataclass(frozen=True)
class _Histograms:
    """Two samples of a column, counted in the same bins.

    Attributes:
      labels: Labels of the bins.
      counts: Number of values per bin, first in the reference, then in the sample; [2, bins].
      distance: Distance between the two distributions, from 0 to 1.
      p_value: P-value of the test that both samples have the same distribution.
      new: Share of the sample's values that do not occur in the reference. None for numbers.
    """

    labels: list[str]
    counts: npt.NDArray[np.int64]
    distance: float
    p_value: float
    new: float | None = None

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of the values per bin, first in the reference, then in the sample; [2, bins]."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    @classmethod
    def count(cls, reference: pa.Array, sample: pa.Array) -> _Histograms:
        """Count two samples of a column without missing values."""
        if is_text(reference):
            return cls._count_texts(reference, sample)
        samples = [np.asarray(values).astype(np.float64) for values in (reference, sample)]
        distinct = np.unique(np.concatenate(samples))
        if len(distinct) <= _MAX_DISCRETE_VALUES:
            counts = _count_bins([np.searchsorted(distinct, values) for values in samples], len(distinct))
            labels = [f"{value:.6g}" for value in distinct]
            return cls(labels, counts, _compute_divergence(counts), _test_homogeneity(counts))
        edges = np.unique(np.quantile(samples[0], np.arange(1, 10) / 10))
        counts = _count_bins([np.searchsorted(edges, values) for values in samples], len(edges) + 1)
        p_value = float(stats.ks_2samp(*samples, method="asymp").pvalue)
        return cls([*(f"{edge:.6g}" for edge in edges), "above"], counts, _compute_divergence(counts), p_value)

    @classmethod
    def _count_texts(cls, reference: pa.Array, sample: pa.Array) -> _Histograms:
        reference, sample = reference.cast(pa.large_binary()), sample.cast(pa.large_binary())
        value_counts = pc.value_counts(pa.concat_arrays([reference, sample]))
        texts, frequencies = value_counts.field(0).to_pylist(), value_counts.field(1).to_pylist()
        # Texts of the same frequency are sorted, so that the bins do not depend on the order of the rows.
        by_frequency = sorted(zip((-frequency for frequency in frequencies), texts, strict=True))
        top = [text for _, text in by_frequency[:_MAX_TEXT_BINS]]
        value_set = pa.array(top, pa.large_binary())
        indices = [
            np.asarray(pc.index_in(values, value_set=value_set).fill_null(len(top))) for values in (reference, sample)
        ]
        counts = _count_bins(indices, len(top) + 1)
        shares = counts / counts.sum(axis=1, keepdims=True)
        distance = float(np.abs(shares[0] - shares[1]).max())
        new = 1 - float(np.asarray(pc.is_in(sample, value_set=reference.unique())).mean())
        labels = [*(text.decode(errors="replace") for text in top), "others"]
        return cls(labels, counts, distance, _test_homogeneity(counts), new)


def _count_bins(indices: Sequence[npt.NDArray[np.intp]], bin_count: int) -> npt.NDArray[np.int64]:
    """Return the number of values per sample and bin; [samples, bins].

    Args:
      indices: For each sample, the index of the bin of each value; [values].
      bin_count: Number of bins.
    """
    return np.stack([np.bincount(sample_indices, minlength=bin_count) for sample_indices in indices])


def _compute_divergence(counts: npt.NDArray[np.int64]) -> float:
    """Return the Jensen-Shannon divergence of two histograms in bits, from 0 to 1."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares.mean(axis=0)
    terms = np.where(shares > 0, shares * np.log2(np.where(shares > 0, shares, 1) / np.where(mean > 0, mean, 1)), 0.0)
    return float(np.clip(terms.sum() / 2, 0.0, 1.0))


def _compute_psi(expected: npt.NDArray[np.float64], received: npt.NDArray[np.float64]) -> float:
    p, q = (np.maximum(shares, _MIN_SHARE) for shares in (expected, received))
    return float(((q - p) * np.log(q / p)).sum())


def _test_homogeneity(counts: npt.NDArray[np.int64]) -> float:
    """Return the p-value of the chi-squared test of homogeneity; bins with few values are merged.

    Args:
      counts: Number of values per sample and bin; [2, bins].
    """
    total = counts.sum(axis=0)
    expected = counts.sum(axis=1, keepdims=True) * total / max(total.sum(), 1)
    # The chi-squared approximation needs an expected count of about five in each cell.
    small = expected.min(axis=0) < 5
    table = np.column_stack([counts[:, ~small], counts[:, small].sum(axis=1)]) if small.any() else counts
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or (table.sum(axis=1) == 0).any():
        return 1.0
    return float(stats.chi2_contingency(table, correction=False)[1])


def _correct_by_holm(p_values: list[float]) -> list[float]:
    """Apply Holm's correction, which bounds the probability of one or more false alarms among all columns."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(p_value) for p_value in corrected]
