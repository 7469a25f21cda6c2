"""The rows of the training split in memory, for models that are not trained in steps: forests, and user functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from components.base.errors import InputError
from components.features import feature_names
from components.trainer import input_pipeline
from components.trainer.input_columns import FeatureSpec
from components.trainer.input_pipeline import Batch
from components.trainer.training_rows import TrainingRows
from components.trainer.validation_part import (
    NOT_USED,
    FoldMasks,
    Keys,
    Mask,
    Numbers,
    Selection,
    ValidationPart,
    key_names,
)

_MEMORY = 0.25
"""Maximum share of the machine's memory for the rows; a training holds two more copies, such as the matrix of trees."""
_BATCH, _BATCH_BYTES = 65_536, 64 << 20
"""Maximum number of rows that are read at once, and maximum size of their expanded features in bytes."""


class Rows(NamedTuple):
    """Rows to train on.

    Attributes:
      features: Transformed feature → its values, [rows] or [rows, width].
      label: Labels as the prediction head takes them, [rows].
      weight: Weights of the rows, [rows]; if None, all rows have the same weight.
    """

    features: dict[str, npt.NDArray[Any]]
    label: npt.NDArray[Any]
    weight: npt.NDArray[np.float32] | None = None

    def where(self, mask: Mask) -> Rows:
        """Return the rows that a mask selects."""
        features = {name: values[mask] for name, values in self.features.items()}
        return Rows(features, self.label[mask], None if self.weight is None else self.weight[mask])

    def sample(self, count: int, seed: int) -> Rows:
        """Return these rows, or `count` of them at random if there are more."""
        if len(self.label) <= count:
            return self
        chosen = np.random.default_rng(seed).choice(len(self.label), count, replace=False)
        weights = None if self.weight is None else self.weight[chosen]
        return Rows({name: values[chosen] for name, values in self.features.items()}, self.label[chosen], weights)


def read(batches: Iterable[Batch]) -> Rows:
    """Read rows into memory.

    Raises:
      InputError: If the rows do not fit into memory.
    """
    features: dict[str, list[npt.NDArray[Any]]] = {}
    labels, weights, size = [], [], 0
    most = _MEMORY * input_pipeline.machine_memory()
    for columns, label, *weight in batches:
        for name, values in columns.items():
            features.setdefault(name, []).append(values.numpy())
            size += features[name][-1].nbytes
        labels.append(label.numpy()[:, 0])
        weights += [values.numpy() for values in weight]
        if size > most:
            raise InputError(
                f"model: it is trained on rows in memory; expected at most {most / 2**30:.1f} GiB, which is "
                f"{_MEMORY:.0%} of this machine's, received more",
                "choose a network, which reads its rows from the files; or a machine with more memory, or fewer rows",
            )
    columns = {name: np.concatenate(chunks) for name, chunks in features.items()}
    return Rows(columns, np.concatenate(labels), np.concatenate(weights) if weights else None)


class TrainingSplit(NamedTuple):
    """The training split in memory.

    Attributes:
      rows: All rows.
      folds: For each row the number of its fold, see `ValidationPart.numbers`.
      keys: If folds have rolling origins, the keys of the rows, see `ValidationPart.of`; otherwise None.
      part: The validation part, or the folds.
    """

    rows: Rows
    folds: Numbers
    keys: Keys | None
    part: ValidationPart

    def without_unused(self) -> TrainingSplit:
        """Return the split without rows that are neither held out nor trained on."""
        is_used = self.folds != NOT_USED
        if is_used.all():
            return self
        return self._replace(rows=self.rows.where(is_used), folds=self.folds[is_used])

    def list_masks(self) -> list[FoldMasks]:
        """Return the rows to train on and the rows held out, for the validation part or each fold that has rows."""
        if self.keys is not None:
            return [
                FoldMasks(self.part.mask_known(self.keys, fold), self.folds == fold) for fold in range(self.part.folds)
            ]
        return [FoldMasks.of(mask) for fold in range(self.part.folds) if (mask := self.folds == fold).any()]


def read_training_split(rows: TrainingRows, features: Iterable[str]) -> TrainingSplit:
    """Read features, label and weight of the training split into memory.

    Args:
      rows: The rows of the training.
      features: Names of the features to read.

    Raises:
      InputError: If the rows do not fit into memory.
    """
    targets = [name for name in (feature_names.LABEL, feature_names.WEIGHT) if name in rows.spec]
    part = rows.validation_part
    names_of_keys = key_names(part.by) if part.is_rolling else ()
    spec: FeatureSpec = {
        **{name: rows.spec[name] for name in (*features, *targets)},
        **{name: rows.key_spec[name] for name in names_of_keys},
    }
    compact = rows.compact
    size = max(1, min(_BATCH, _BATCH_BYTES // max(1, compact.only(spec).row_bytes)))
    selection = Selection(part, inside=None)
    batches = input_pipeline.evaluation_batches(rows.train_files, spec, size, selection)
    read_rows = read((compact.expand(features), *columns) for features, *columns in batches)
    folds = read_rows.features.pop(feature_names.FOLD)
    columns = [read_rows.features.pop(name) for name in names_of_keys]
    return TrainingSplit(read_rows, folds, np.stack(columns, axis=1) if columns else None, part)
