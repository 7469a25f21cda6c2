"""Compare two samples of rows column by column: measure distances, and test whether the distributions differ.

These figures are computed for each column:

    distance      For text, the largest difference between the shares of a value (L-infinity). For numbers, the
                  Jensen-Shannon divergence in bits over the deciles of the reference. TFDV's skew and drift comparators
                  compute the same two distances. The test is the Kolmogorov-Smirnov test for numbers; the chi-squared
                  test of homogeneity for text and for numbers with few distinct values.
    psi           The population stability index over the same bins: the sum of (q - p) ln(q / p).
    missing       The shares of rows without a value, with the chi-squared test.
    new           For text, the share of the sample's values that do not occur in the reference, and the share to expect
                  without a change, which is Good's estimate. The test is a permutation test, see `_test_new_values`.
    out_of_range  For numbers, the share of the sample's values outside the range of the reference, with an exact bound
                  on the p-value, see `_test_range`.
    tails         For numbers, the shares of values beyond the 1 % and 99 % quantiles of the reference, with the
                  chi-squared test. Deciles do not show a change within the outermost tenth of the values.

A column has drifted only if both a figure and its test say so. In a small sample a figure alone can be large by chance.
In a large sample the test alone detects differences that do not matter.

Sources: J. Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37(1), 1991. N. Siddiqi,
Credit Risk Scorecards, Wiley, 2006 (PSI). J. Hodges, The Significance Probability of the Smirnov Two-Sample Test,
Arkiv för Matematik 3, 1958. S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statistics 6,
1979. I. J. Good, The Population Frequencies of Species and the Estimation of Population Parameters, Biometrika 40,
1953.
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
from components.results.column_comparison import (
    DISTANCE,
    MISSING,
    NEW_VALUES,
    OUT_OF_RANGE,
    TAILS,
    Bin,
    ColumnComparison,
)

_MAX_DISCRETE_VALUES = 20
"""A numeric column with at most this number of distinct values is compared value by value, not by quantiles."""
_MAX_TEXT_BINS = 50
"""Number of most frequent texts that get a separate bin. They are counted in both samples together, because a test
whose bins were chosen from only one of the samples reports differences too often."""
_MIN_SHARE = 1e-4
"""Lower limit of a bin's share in the PSI, because the logarithm is unbounded for an empty bin."""

_TAIL = 0.01
"""Share of the reference's values in each of the two tails."""

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
    rows = max(map(len, sample.values()), default=1)
    comparisons = [
        _compare_column(name, column, sample.get(name, pa.nulls(rows, column.type)))
        for name, column in reference.items()
        if not column.type.num_fields
    ]
    corrected = iter(_correct_by_holm([p for comparison in comparisons for p in comparison.p_values.values()]))
    comparisons = [
        _set_p_values(comparison, dict(zip(comparison.p_values, corrected, strict=False))) for comparison in comparisons
    ]
    return sorted(
        comparisons,
        key=lambda comparison: -1.0 if comparison.distance is None else comparison.distance,
        reverse=True,
    )


def is_text(column: pa.Array) -> bool:
    """Return whether a column contains text rather than numbers."""
    return any(test(column.type) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string))


def _compare_column(name: str, reference: pa.Array, sample: pa.Array) -> ColumnComparison:
    """Compare a column; the p-values of the result are not corrected yet."""
    reference, sample = nan_to_null(reference), nan_to_null(sample)
    missing = reference.null_count / len(reference), sample.null_count / len(sample)
    reference_values, sample_values = reference.drop_null(), sample.drop_null()
    missing_p_value = _test_homogeneity(
        np.array([[len(reference_values), reference.null_count], [len(sample_values), sample.null_count]])
    )
    p_values = {MISSING: missing_p_value}
    if not len(reference_values) or not len(sample_values):
        return ColumnComparison(name, None, None, missing_p_value, missing, None, (), p_values=p_values)
    histograms = _Histograms.count(reference_values, sample_values)
    expected, received = histograms.shares
    bins = tuple(map(Bin, histograms.labels, expected.tolist(), received.tolist()))
    return ColumnComparison(
        name,
        histograms.distance,
        _compute_psi(expected, received),
        missing_p_value,
        missing,
        histograms.new,
        bins,
        histograms.expected_new,
        histograms.out_of_range,
        histograms.tails,
        {**histograms.p_values, **p_values},
    )


def _set_p_values(comparison: ColumnComparison, p_values: Mapping[str, float]) -> ColumnComparison:
    return replace(comparison, p_value=min(p_values.values()), p_values=p_values)


@dataclass(frozen=True)
class _Histograms:
    """Two samples of a column, counted in the same bins.

    Attributes:
      labels: Labels of the bins.
      counts: Number of values per bin, first in the reference, then in the sample; [2, bins].
      distance: Distance between the two distributions, from 0 to 1.
      p_values: Name of a figure → p-value of its test that both samples have the same distribution.
      new: Share of the sample's values that do not occur in the reference. None for numbers.
      expected_new: Value of `new` to expect without a change. None for numbers.
      out_of_range: Share of the sample's values outside the range of the reference. None for texts.
      tails: Share of the values in the tails, first in the reference, then in the sample. None for texts and for
        numbers with few distinct values.
    """

    labels: list[str]
    counts: npt.NDArray[np.int64]
    distance: float
    p_values: Mapping[str, float]
    new: float | None = None
    expected_new: float | None = None
    out_of_range: float | None = None
    tails: tuple[float, float] | None = None

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
        outside = int(((samples[1] < samples[0].min()) | (samples[1] > samples[0].max())).sum())
        out_of_range = outside / len(samples[1])
        range_p_value = _test_range(outside, len(samples[0]), len(samples[1]))
        distinct = np.unique(np.concatenate(samples))
        if len(distinct) <= _MAX_DISCRETE_VALUES:
            counts = _count_bins([np.searchsorted(distinct, values) for values in samples], len(distinct))
            labels = [f"{value:.6g}" for value in distinct]
            p_values = {DISTANCE: _test_homogeneity(counts), OUT_OF_RANGE: range_p_value}
            return cls(labels, counts, _compute_divergence(counts), p_values, out_of_range=out_of_range)
        edges = np.unique(np.quantile(samples[0], np.arange(1, 10) / 10))
        counts = _count_bins([np.searchsorted(edges, values) for values in samples], len(edges) + 1)
        in_tails = _count_tails(*samples)
        p_values = {
            DISTANCE: float(stats.ks_2samp(*samples, method="asymp").pvalue),
            OUT_OF_RANGE: range_p_value,
            TAILS: _test_homogeneity(in_tails),
        }
        shares = 1 - in_tails[:, 1] / in_tails.sum(axis=1)
        return cls(
            [*(f"{edge:.6g}" for edge in edges), "above"],
            counts,
            _compute_divergence(counts),
            p_values,
            out_of_range=out_of_range,
            tails=(float(shares[0]), float(shares[1])),
        )

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
        reference_counts = pc.value_counts(reference)
        is_new = ~np.asarray(pc.is_in(sample, value_set=reference_counts.field(0)))
        # Good's estimate: the probability of an unseen value is the share of values that were seen exactly once.
        expected_new = float((np.asarray(reference_counts.field(1)) == 1).sum()) / len(reference)
        new_p_value = _test_new_values(np.asarray(value_counts.field(1)), int(is_new.sum()), len(sample))
        p_values = {DISTANCE: _test_homogeneity(counts), NEW_VALUES: new_p_value}
        labels = [*(text.decode(errors="replace") for text in top), "others"]
        return cls(labels, counts, distance, p_values, float(is_new.mean()), expected_new)


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


def _count_tails(reference: npt.NDArray[np.float64], sample: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the number of values per sample below, between and above the outer quantiles of the reference; [2, 3]."""
    low, high = (float(np.quantile(reference, level)) for level in (_TAIL, 1 - _TAIL))
    return _count_bins([(values >= low).astype(np.intp) + (values > high) for values in (reference, sample)], 3)


def _test_range(outside: int, reference_size: int, sample_size: int) -> float:
    """Return an upper bound on the probability that this number of values is outside the range of the reference.

    If both samples have the same distribution, every order of the values is equally likely. If k values are outside,
    then for some i the i least and the k - i greatest of all values belong to the sample. Each of these k + 1 events
    has the probability C(sample, k) / C(reference + sample, k). Ties make the event less likely.

    Args:
      outside: Number of the sample's values below the least or above the greatest value of the reference.
      reference_size: Number of values in the reference.
      sample_size: Number of values in the sample.
    """
    steps = np.arange(outside)
    logarithm = np.log((sample_size - steps) / (reference_size + sample_size - steps)).sum()
    return float(min(1.0, (outside + 1) * np.exp(logarithm)))


def _test_new_values(counts: npt.NDArray[np.int64], new: int, sample_size: int) -> float:
    """Return the p-value of the test that the sample has more values that are new to the reference than by chance.

    If both samples have the same distribution, every division of the values among them is equally likely. A text that
    occurs c times in both samples together is new if all of its c values belong to the sample. The number of new values
    is compared with its exact mean and variance over all divisions; its distribution is approximated by the normal
    distribution. IDs that are unique to each row are new in every division, so the p-value is 1.

    Args:
      counts: How often each text occurs in both samples together; [texts].
      new: Number of the sample's values whose text does not occur in the reference.
      sample_size: Number of values in the sample.
    """
    size, total = sample_size, counts.sum()
    steps = np.arange(size)
    # Number of values → probability that all of them belong to the sample.
    probability = np.exp(np.append(0.0, np.cumsum(np.log((size - steps) / (total - steps)))))

    def find_probability(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.where(values <= size, probability[np.minimum(values, size)], 0.0))

    frequencies, texts = np.unique(counts, return_counts=True)
    is_new = find_probability(frequencies)
    mean = (texts * frequencies * is_new).sum()
    pairs = np.outer(texts, texts) - np.diag(texts)
    both_new = find_probability(frequencies[:, np.newaxis] + frequencies)
    squares = (texts * frequencies**2 * is_new).sum() + (pairs * np.outer(frequencies, frequencies) * both_new).sum()
    # A deviation of at least one value keeps rounding errors from counting if the number cannot vary.
    deviation = np.sqrt(max(squares - mean**2, 1.0))
    return float(stats.norm.sf((new - mean) / deviation))


def _correct_by_holm(p_values: list[float]) -> list[float]:
    """Apply Holm's correction, which bounds the probability of one or more false alarms among all tests."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    return [float(p_value) for p_value in corrected]
