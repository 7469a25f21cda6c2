"""Names of the transformed features, the label and their vocabulary files."""

from __future__ import annotations

LABEL = "label"
"""Name of the transformed label. Features cannot have this name, because their names end with the operation."""
ROW_KEY = "row_key"
"""Name of the key of a row, if `data.split` keeps groups or times together: int64, a hash of the group, or a time in
seconds since 1970. The Trainer's validation part keeps rows with the same key together. The model does not read it."""
ROW_END = "row_end"
"""Name of the time of a forecast's label, in seconds since 1970, whose row key is the time of its origin: int64. The
Trainer does not train on labels after the first origin of its validation part. The model does not read it."""
WEIGHT = "weight"
"""Name of the weight of a row, if `data.weight` names a column: float32. The model does not read it."""
NO_ROW_KEY = 0
"""Key of a row without a group, a time or a list."""
LIST_KEY = "list_key"
"""Name of the key of the list that a row belongs to, if `model.list_column` names a column: int64, a hash of the value.
The model does not read it."""
FOLD = "fold"
"""Name of the cross-validation fold that a row belongs to: int64. The Trainer adds it to the transformed features."""
DRAWN = "__drawn__"
"""Name of a column that only training rows have, and only while Transform reads them: a random int64 per row, from
which `target_mean` chooses the fold of the row."""
LABEL_CLASSES = "label_classes"
"""Vocabulary file of a multiclass or multilabel label. Line i contains class i."""
LABEL_COUNTS = "label_counts"
"""Vocabulary file with lines `count value`, one per value of the label in the training split."""
NO_LABEL = "\x00missing"
"""Value in LABEL_COUNTS that stands for rows without a label."""
BROKEN_LABEL = "\x00line break"
"""Value in LABEL_COUNTS that stands for rows whose class contains a line break, which vocabulary files do not allow."""
LABEL_SCALE = "label_scale"
"""File of a regression label. Its lines are the number of training rows, the number of rows without a label, the mean,
the standard deviation, and the number of rows with a negative label."""
LABEL_TIMES = "label_times"
"""File of a survival label; see `analysis.SurvivalTimes` for its lines."""
ITEM_ROWS = "item_rows"
"""File of a retrieval with lines `count item`, where the count is the number of training rows with the item."""
ITEM_INTERACTIONS = "item_interactions"
"""File of a retrieval like ITEM_ROWS, but with the number of training rows with the item and label 1."""
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
    """Return the name of the tensor in the transform graph with the analysis results of a group of features.

    The tensor has the shape [width] for a single feature, or [width, features].

    Args:
      number: Number of the group of features.
    """
    return f"{ANALYSIS}{number}"


def feature_names_constant(number: int) -> str:
    """Return the name of the constant in the transform graph with the names of the group's features."""
    return f"{ANALYZED_FEATURES}{number}"


ANALYSIS = "analysis_numbers_"
ANALYZED_FEATURES = "analysis_features_"
