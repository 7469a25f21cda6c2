"""The transformed rows that a training reads: batches to train on, the validation part, and the eval split."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.features import feature_names, images
from components.features.compact import CompactFeatures
from components.models.forest import Floats
from components.trainer import input_pipeline, list_statistics
from components.trainer.augmentation import augment
from components.trainer.config import AugmentationConfig
from components.trainer.input_columns import FeatureSpec
from components.trainer.input_pipeline import Batch, InputPipeline, PixelCache
from components.trainer.plan import TrainingPlan
from components.trainer.validation_part import Selection, ValidationPart

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs

_EVAL_BATCH, _EVAL_BYTES = 4096, 64 << 20
"""Maximum number of rows in a batch for evaluation, and maximum size of its expanded features in bytes."""


class TrainingRows:
    """The rows of the training and eval splits of one training.

    Args:
      plan: The features and the training section.
      fn_args: TFX's FnArgs with the file patterns of both splits.
      spec: Parsing spec of the transformed columns.
      holds_out: Whether rows of the training split are held out for validation.

    Attributes:
      spec: Parsing spec of the columns that a model reads, including the label and the weight.
      key_spec: Parsing spec of the columns that only decide which rows are held out.
      compact: The features that are stored in a compact form.
    """

    def __init__(self, plan: TrainingPlan, fn_args: FnArgs, spec: FeatureSpec, holds_out: bool) -> None:
        self._plan, self._fn_args, self.holds_out = plan, fn_args, holds_out
        self._list_size = plan.model.list_size if plan.features.list_column else None
        keys = (feature_names.ROW_KEY, feature_names.ROW_END)
        self.key_spec = {name: spec[name] for name in keys if name in spec}
        self.spec = {name: column for name, column in spec.items() if name not in keys}
        self.compact = CompactFeatures.find(plan.features.features)
        self._decode = self.compact.expand if self.compact else None
        # Each function is traced once for all evaluations.
        self._expand_batch = tf.function(self._decode, autograph=False) if self._decode else None

    @functools.cached_property
    def train_files(self) -> list[str]:
        """The files of the training split."""
        return input_pipeline.find(self._fn_args.train_files)

    @functools.cached_property
    def validation_part(self) -> ValidationPart:
        """The rows of the training split that are held out, or the folds."""
        key, model = self._plan.features.row_key, self._plan.model
        return input_pipeline.validation_part(
            self.train_files,
            self.spec,
            self._plan.training,
            key.by if key else "row",
            # Only a forest is trained again on all rows after the folds.
            can_roll=model.has_forest and not model.has_network,
        )

    @property
    def folds(self) -> int:
        """Number of folds that contain all rows together; 1 without them."""
        return self.validation_part.folds if self.holds_out and not self.validation_part.is_rolling else 1

    def input_pipeline(self, replicas: int = 1) -> InputPipeline:
        """Return the batches to train on, without the rows that are held out.

        Args:
          replicas: Number of replicas that take part in a synchronous step.

        Raises:
          InputError: If the replicas or the lists cannot divide a batch.
        """
        compact, config = self.compact, self._plan.training
        encoded, changes = compact.images, config.augmentation
        batch_rows = config.replica_rows(replicas)
        if self._list_size:
            list_statistics.check_batch(batch_rows, self._list_size, config.optimizer.accumulate)
        return InputPipeline(
            self.train_files,
            self.spec,
            config,
            batch_rows,
            self._selection(inside=False) if self.holds_out else None,
            self._decode,
            functools.partial(augment, encoded, changes) if changes != AugmentationConfig() else None,
            PixelCache(compact.pack, compact.unpack, images.row_bytes(encoded)) if encoded else None,
            self._list_size,
        )

    def check_lists(self) -> None:
        """Log the lists that are trained on, if there are lists.

        Raises:
          InputError: If the loss of every list is 0.
        """
        if self._list_size:
            spec = {name: self.spec[name] for name in (feature_names.LABEL, feature_names.LIST_KEY)}
            selection = self._selection(inside=False) if self.holds_out else None
            batches = input_pipeline.evaluation_batches(self.train_files, spec, _EVAL_BATCH, selection)
            keys, labels = zip(
                *((columns[feature_names.LIST_KEY].numpy(), label.numpy()[:, 0]) for columns, label, *_ in batches),
                strict=True,
            )
            list_statistics.check(np.concatenate(keys), np.concatenate(labels), self._list_size)

    def validation_batches(self) -> Iterator[Batch]:
        """Yield the rows that are held out, with the features that the network reads; with folds, all rows."""
        return self._expand(self._validation_rows)

    def validation_labels(self) -> tuple[npt.NDArray[Any], Floats | None]:
        """Return the labels [rows, labels] and the weights [rows] of `validation_batches`; None without weights."""
        labels, *weights = zip(*(columns for _, *columns in self._validation_rows), strict=True)
        return np.concatenate(labels), np.concatenate(weights[0]) if weights else None

    def eval_batches(self) -> Iterator[Batch]:
        """Yield the rows of the eval split, with the features that the network reads."""
        files = input_pipeline.find(self._fn_args.eval_files)
        return self._expand(input_pipeline.evaluation_batches(files, self.spec, self._eval_batch))

    @functools.cached_property
    def _validation_rows(self) -> list[Batch]:
        """The rows that are held out, in memory, because their files contain all rows of the training split.

        Their features are in the compact form, because the pixels of all images may be large.
        """
        selection = self._selection(inside=True)
        if self._list_size:
            rows = max(self._eval_batch, self._list_size)
            return list(input_pipeline.list_batches(self.train_files, self.spec, rows, self._list_size, selection))
        return list(input_pipeline.evaluation_batches(self.train_files, self.spec, self._eval_batch, selection))

    @property
    def _eval_batch(self) -> int:
        return max(1, min(_EVAL_BATCH, _EVAL_BYTES // max(1, self.compact.row_bytes)))

    def _selection(self, inside: bool) -> Selection:
        """Select the rows to validate on, or to train on; with folds, all rows for both."""
        return Selection(self.validation_part, None if self.folds > 1 else inside)

    def _expand(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Expand the compact features of one batch at a time."""
        for features, *columns in batches:
            yield self._expand_batch(features) if self._expand_batch else features, *columns
