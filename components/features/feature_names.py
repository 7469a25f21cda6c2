"""Names of the transformed features, the label and their vocabulary files."""

from __future__ import annotations

LABEL = "label"
"""The transformed label. No feature has this name, since a feature's name ends with its operation."""
ROW_KEY = "row_key"
"""What keeps rows together in the Trainer's validation part, if `data.split` keeps them together: int64, a hash of the
group, or a time in seconds since 1970. It is no input of the model."""
WEIGHT = "weight"
"""The weight of a row, if `data.weight` names a column: float32. It is no input of the model."""
NO_ROW_KEY = 0
"""The key of a row without a group, or without a time."""
FOLD = "fold"
"""The fold of cross-validation that a row is in: int64. The Trainer adds it to the transformed features it reads."""
LABEL_CLASSES = "label_classes"
"""Vocabulary file of a multiclass label: class i is on line i."""
LABEL_COUNTS = "label_counts"
"""Vocabulary file with a line `count value` for each value of the label in the training split."""
NO_LABEL = "\x00missing"
"""The value of LABEL_COUNTS that stands for rows without a label."""
BROKEN_LABEL = "\x00line break"
"""The value of LABEL_COUNTS that stands for rows whose class has a line break, which a vocabulary file cannot have."""
LABEL_SCALE = "label_scale"
"""File of a regression label: number of training rows, number of rows without a label, mean, standard deviation, and
number of rows with a negative label, each on a line."""
ITEM_ROWS = "item_rows"
"""File of a retrieval with a line `count item` for each item of the training split: the number of its rows."""
ITEM_INTERACTIONS = "item_interactions"
"""The same with the number of its rows with label 1."""
WEIGHT_SCALE = "weight_scale"
"""File of the weights of the training split, with the same lines as LABEL_SCALE."""


COLLISIONS = "collisions_"
"""Prefix of the file with the collisions of a hashed feature; see `analysis.Collisions` for its lines."""
UNPARSED_DATES = "unparsed_dates_"
"""Prefix of the file with the number of a column's texts that are not dates; see `analysis.UnparsedDates`."""


def feature(column: str, suffix: str) -> str:
    """Return the name of a transformed feature, from the column's name and the operation's suffix."""
    return f"{column}_{suffix}"


def analysis_tensor(number: int) -> str:
    """Return the name of the tensor in the transform graph that has the numbers of the analysis of some features.

    Its shape is [width], of one feature, or [width, features].

    Args:
      number: Of the group of features.
    """
    return f"{ANALYSIS}{number}"


def analyzed_features(number: int) -> str:
    """Return the name of the constant in the transform graph that has the names of these features."""
    return f"{ANALYZED_FEATURES}{number}"


ANALYSIS = "analysis_numbers_"
ANALYZED_FEATURES = "analysis_features_"
