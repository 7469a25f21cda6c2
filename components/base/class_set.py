"""The `data.classes` section: how the classes of a multilabel task are read from the column of the label."""

from __future__ import annotations

from pydantic import Field

from components.base.config_section import Section


class ClassSetConfig(Section):
    """The classes of the task multilabel. The column of the label contains the classes of a row as a text with a
    separator (`red|green`), as a list, or both. A row without a value has no classes, which is a valid label.
    """

    separator: str = Field(default="|", min_length=1)
    """Separator of the classes in a text. White space around a class is removed, and empty classes are dropped."""
    size: int = Field(default=100, ge=2, le=1000)
    """Maximum number of classes to predict: the most frequent classes of the training split. The label of a row takes
    4 bytes per class in the transformed examples, even if there are fewer classes."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum number of rows of the training split with a class. Rarer classes are not predicted. They are ignored in
    labels, and the log of the Trainer contains their number."""
