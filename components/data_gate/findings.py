"""Finds problems in TFDV's statistics and anomalies, for the data gate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from components.base.limits import MOST_CLASSES
from components.data.near_duplicates import NearDuplicates


@dataclass(frozen=True)
class Finding:
    """A reason for the gate to stop the run.

    Attributes:
      split: Name of the split.
      feature: Name of the column. Empty for the whole split.
      description: Text that says what was expected and received, with figures.
      remedy: Suggestion of what the user can do.
    """

    split: str
    feature: str
    description: str
    remedy: str

    @property
    def line(self) -> str:
        """The finding as one line of text."""
        return f"{self.split}: {f'{self.feature}: ' if self.feature else ''}{self.description} [{self.remedy}]"


def rows(split: str, dataset: statistics_pb2.DatasetFeatureStatistics, least: int) -> Iterator[Finding]:
    """Yield a finding if a split has fewer rows than `least`."""
    if dataset.num_examples < least:
        description = f"expected at least {least:,} rows, received {int(dataset.num_examples):,}"
        yield Finding(split, "", description, "add data, or lower validation.min_rows")


def label(split: str, dataset: statistics_pb2.DatasetFeatureStatistics, name: str, classes: bool) -> Iterator[Finding]:
    """Yield a finding if the label is missing in any row.

    If the label has classes, also yield a finding if it is constant or has too many classes.

    Args:
      split: Name of the split.
      dataset: Statistics of the split.
      name: Name of the label's column.
      classes: Whether the label has classes.
    """
    feature = next((feature for feature in dataset.features if _name(feature) == name), None)
    common = None if feature is None else _common(feature)
    present = 0 if common is None else int(common.num_non_missing) - _without_content(feature)
    total = int(dataset.num_examples)
    if present < total:
        description = f"the label is missing in {total - present:,} of {total:,} rows; the threshold is 0"
        yield Finding(split, name, description, "remove these rows, or fill in the label")
    if feature is None or not classes or not present:
        return
    texts = int(feature.string_stats.unique)
    if texts > MOST_CLASSES:
        description = f"the label has {texts:,} different texts; expected at most {MOST_CLASSES:,} classes"
        yield Finding(split, name, description, "choose a label with fewer values, or merge rare ones")
    value = _constant(feature)
    if value is not None:
        description = f"the label is constant: {value!r} in all {present:,} rows; expected at least 2 values"
        yield Finding(split, name, description, "choose another label, or add data with other values of it")


def near_duplicates(duplicates: Iterable[NearDuplicates], most: float | None) -> Iterator[Finding]:
    """Yield findings for columns in which too many images have a near duplicate in the training split.

    Args:
      duplicates: Near duplicates by column and split, which StatisticsGen found.
      most: Maximum share of images with a near duplicate, 0 to 1. If None, near duplicates are not findings.
    """
    for entry in duplicates:
        if most is not None and entry.share > most:
            pairs = ", ".join(f"{pair.name} and {pair.train}" for pair in entry.pairs)
            description = (
                f"expected at most {most:.1%} of the images to look like one of train, received {entry.share:.1%}: "
                f"{entry.found:,} of {entry.images:,}, such as {pairs}"
            )
            remedy = "remove them, split by a column that keeps copies together, or raise validation.near_duplicates"
            yield Finding(entry.split, entry.column, description, remedy)


def anomalies(split: str, validated: anomalies_pb2.Anomalies, schema_path: str | None) -> Iterator[Finding]:
    """Yield a finding for each of ExampleValidator's anomalies.

    Args:
      split: Name of the split.
      validated: Output of ExampleValidator for the split.
      schema_path: Path of the curated schema, which the remedies mention. None if the schema was inferred.
    """
    schema = schema_path or "the schema"
    features = {feature.name: feature for feature in validated.baseline.feature}
    for name, info in sorted(validated.anomaly_info.items()):
        for reason in info.reason or [info]:
            kind = anomalies_pb2.AnomalyInfo.Type.Name(reason.type) if reason is not info else ""
            description = " ".join(f"{reason.short_description}: {reason.description}".split())
            threshold = _threshold(kind, features[name]) if name in features else ""
            yield Finding(split, name, f"{description.rstrip('.')}{threshold}", _remedy(kind, schema))
    for reason in validated.dataset_anomaly_info.reason:
        description = " ".join(f"{reason.short_description}: {reason.description}".split())
        yield Finding(split, "", description.rstrip("."), f"fix the data, or change the bounds in {schema}")


def _threshold(kind: str, feature: schema_pb2.Feature) -> str:
    """Return the violated bound, for anomalies whose description does not contain it. Otherwise an empty string."""
    if "UNEXPECTED_STRING" in kind:
        constraints = feature.distribution_constraints
        return f"; the threshold is {1 - constraints.min_domain_mass:.0%} of the values"
    domain = feature.WhichOneof("domain_info") or ""
    if not re.search("BIG|SMALL", kind) or domain not in ("int_domain", "float_domain"):
        return ""
    limits, words = getattr(feature, domain), {"min": "at least", "max": "at most"}
    bounds = [f"{words[side]} {getattr(limits, side):g}" for side in words if limits.HasField(side)]
    return f"; expected {' and '.join(bounds)}"


_REMEDIES = (
    ("UNEXPECTED_STRING", "add the values to the column's domain in {schema}, or fix them in the data"),
    ("SCHEMA_MISSING_COLUMN|NOT_PRESENT", "restore the column, or remove it from {schema}"),
    ("SCHEMA_NEW_COLUMN", "add the column to {schema}, or remove it from the data"),
    ("_PRESENT|NUMBER_VALUES|NO_VALUES|MISSING", "fill in the missing values, or lower the presence in {schema}"),
    ("BIG|SMALL|HAS_NAN|HAS_INF", "fix the values, or widen the column's range in {schema}"),
    ("TYPE", "fix the column's values, or change its type in {schema}"),
)
"""Pairs (pattern of the anomaly's type in TFMD, remedy). The first pattern that matches is used."""


def _remedy(kind: str, schema: str) -> str:
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, kind):
            return remedy.format(schema=schema)
    return f"fix the data, or change the column in {schema}"


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return feature.name or ".".join(feature.path.step)


def _common(feature: statistics_pb2.FeatureNameStatistics) -> statistics_pb2.CommonStatistics:
    return getattr(feature, feature.WhichOneof("stats")).common_stats


def _without_content(feature: statistics_pb2.FeatureNameStatistics) -> int:
    """Return the number of values that are NaN or an empty string, as far as the statistics contain it."""
    if feature.WhichOneof("stats") == "num_stats":
        return max((int(histogram.num_nan) for histogram in feature.num_stats.histograms), default=0)
    buckets = feature.string_stats.rank_histogram.buckets
    return sum(int(bucket.sample_count) for bucket in buckets if not bucket.label)


def _constant(feature: statistics_pb2.FeatureNameStatistics) -> str | None:
    """Return the value that all rows have. None if the values differ."""
    if feature.WhichOneof("stats") == "num_stats":
        numbers = feature.num_stats
        return f"{numbers.min:g}" if numbers.min == numbers.max else None
    texts = feature.string_stats
    if texts.unique == 1:
        return texts.top_values[0].value if texts.top_values else ""
    return None
