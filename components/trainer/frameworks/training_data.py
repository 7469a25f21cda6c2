"""The transformed rows that a user's function `model.train` receives, as Arrow tables and as a DataFrame of numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import tensorflow as tf

from components.base.config_section import Task
from components.features import feature_names
from components.features.feature_spec import Ids
from components.models.forest import TreeInput, matrix
from components.models.inputs import Inputs
from components.trainer.memory_rows import Rows

_MOST_IDS = 256
"""Maximum number of IDs of a feature with several IDs per row that become columns of numbers."""
_CHUNK = 8192
"""Number of rows whose numbers are computed at once."""


@dataclass(frozen=True)
class TrainingData:
    """The rows to train on, and what is known about them.

    A table has a column per transformed feature: float32, int64 for IDs, or lists of these for a feature with several
    values per row. It also has the column `label`, and the column `weight` if the config sets `data.weight`.

        def train(data):
            table = data.train
            return LogisticRegression().fit(data.numbers(table), table["label"].to_numpy())

    Attributes:
      train: The rows to train on.
      validation: The rows that are held out, `training.validation` of the training split. Calibration also uses them.
      task: `binary`, `multiclass` or `regression`. The label is 0 or 1, the index of a class, or a float32 number.
      classes: Names of the classes of a multiclass label, by index; otherwise empty.
      columns: Names of the columns of `numbers`. A feature with several values has a column per value or ID, which is
        named after its number, such as `words_tokens.17`.
      id_columns: The columns of `numbers` that are IDs. Libraries that support categories should treat them as such.
      seed: `training.seed`.
      seconds: `training.max_minutes` in seconds; None without a limit. The function has to respect it.
      label: Name of the column with the label.
      weight: Name of the column with the weights of the rows; None without weights.
    """

    train: pa.Table
    validation: pa.Table
    task: Task
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    id_columns: tuple[str, ...]
    seed: int
    seconds: float | None
    label: str
    weight: str | None
    inputs: tuple[TreeInput, ...] = field(repr=False)

    def numbers(self, table: pa.Table) -> pd.DataFrame:
        """Return features as float32 numbers, one column per name in `columns`.

        Args:
          table: `train`, `validation`, or some of their rows.
        """
        features = {tree_input.feature: to_array(table[tree_input.feature]) for tree_input in self.inputs}
        # The columns of IDs compare all values of a row with all IDs, so compute a limited number of rows at once.
        chunks = [
            matrix(
                self.inputs, {name: tf.constant(values[start : start + _CHUNK]) for name, values in features.items()}
            )
            for start in range(0, max(len(table), 1), _CHUNK)
        ]
        return pd.DataFrame(np.concatenate(chunks), columns=list(self.columns))


def describe_inputs(features: Inputs) -> tuple[TreeInput, ...]:
    """Return the features that become numbers; features with several of many IDs are left out."""
    inputs = []
    for name, spec in features.features.items():
        if not isinstance(spec, Ids):
            inputs.append(TreeInput(name, "number", spec.width))
        elif spec.values == 1:
            inputs.append(TreeInput(name, "number"))
        elif spec.cardinality <= _MOST_IDS:
            # The ID 0 is padding.
            kind: Any = "weighted_words" if spec.is_weighted else "words"
            inputs.append(TreeInput(name, kind, width=0, ids=tuple(range(1, spec.cardinality))))
        else:
            logging.warning(
                "%s has %d IDs, several per row: the tables contain it, but not `numbers`, which takes up to %d",
                *(name, spec.cardinality, _MOST_IDS),
            )
    return tuple(inputs)


def name_columns(inputs: Sequence[TreeInput]) -> tuple[str, ...]:
    """Return the names of the columns of numbers."""
    names: list[str] = []
    for tree_input in inputs:
        numbers = tree_input.ids or range(tree_input.width)
        is_single = not tree_input.ids and tree_input.width == 1
        names += [tree_input.feature] if is_single else [f"{tree_input.feature}.{number}" for number in numbers]
    return tuple(names)


def to_table(rows: Rows) -> pa.Table:
    """Return rows as a table, with their label and their weight."""
    columns = {name: _to_arrow(values) for name, values in rows.features.items()}
    columns[feature_names.LABEL] = pa.array(rows.label)
    if rows.weight is not None:
        columns[feature_names.WEIGHT] = pa.array(rows.weight)
    return pa.table(columns)


def _to_arrow(values: npt.NDArray[Any]) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def to_array(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values of a feature, [rows] or [rows, values]."""
    if not pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.to_numpy())
    return np.asarray(column.combine_chunks().flatten().to_numpy()).reshape(-1, column.type.list_size)
