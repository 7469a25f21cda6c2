"""How transformed features, the label and their vocabularies are called, in the one place that decides it."""

from __future__ import annotations

LABEL = "label"
"""The transformed label. No feature can take this name: a feature's ends in its operation."""
LABEL_CLASSES = "label_classes"
"""Vocabulary file of a multiclass label: class i stands on line i."""
LABEL_COUNTS = "label_counts"
"""Vocabulary file with a line `count value` for each value of the label in the training split."""
LABEL_SCALE = "label_scale"
"""File of a regression label: rows of the training split, how many of them lack it, its mean and its standard
deviation, each on a line."""


def feature(column: str, suffix: str) -> str:
    """The transformed feature that an operation makes of a column; the suffix is the operation's."""
    return f"{column}_{suffix}"
