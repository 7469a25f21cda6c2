"""Compare the transform graph with an independent implementation in NumPy, on the sample of a run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft

from components.base.errors import MachineError
from components.data import skew_sample
from components.data.examples import Examples
from components.features.config import Feature, Hashed, PiecewiseLinear, Vocab
from components.features.host import EXPORTED_OPS, export
from components.features.host.preprocessing import Preprocessing
from components.features.image_ops import Image
from components.features.plan import FeaturePlan

_VOCABULARY_BYTES = 32 << 20
"""Maximum bytes of a vocabulary to compare, because the NumPy implementation holds all entries as Python objects."""


def check(plan: FeaturePlan, folder: str) -> None:
    """Compare the transformed rows of the sample with the features that NumPy computes from the raw rows.

    Args:
      plan: Plan with the declared operations. Operations without an implementation in NumPy, see EXPORTED_OPS, are not
        compared.
      folder: Folder of the transform graph, with the sample.

    Raises:
      MachineError: If a feature differs. The message names the feature, the row and both values.
    """
    sample, transform = skew_sample.read(folder), tft.TFTransformOutput(folder)
    features = [feature for feature in plan.features.declared if _is_compared(feature, transform)]
    if sample is None or not features:
        return
    computed = Preprocessing(export.describe(plan, transform, features))(
        export.host_columns(sample.raw, {name for feature in features for name in feature.columns})
    )
    batch = skew_sample.concatenate(list(Examples((sample.transformed_path,), "parquet").batches()))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    written = {feature.name: _expand(feature, np.asarray(columns[feature.name].flatten())) for feature in features}
    expected = {feature.name: computed[feature.name].reshape(batch.num_rows, -1) for feature in features}
    different = export.first_difference(expected, written)
    if different:
        row = re.search(r", row (\d+):", different)
        values = skew_sample.describe(sample.raw, int(row[1])) if row else []
        raise MachineError(
            f"the transform graph differs from its implementation in NumPy: {different}",
            "no model was trained; run Transform again with --no-cache, and report it if it persists",
            values,
        )


def _expand(feature: Feature, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert stored values of a feature to the form that a network reads; see `components.features.compact`."""
    if not isinstance(feature.op, PiecewiseLinear):
        return values
    # In float64, which represents the sum of a bin and a float32 between 0 and 1 accurately enough.
    ends = values.reshape(-1, 2).sum(axis=1, keepdims=True, dtype=np.float64)
    return np.clip(ends - np.arange(feature.op.bins), 0, 1).astype(np.float32)


def _is_compared(feature: Feature, transform: tft.TFTransformOutput) -> bool:
    op = feature.op
    if op.op not in EXPORTED_OPS or isinstance(op, Image) or (isinstance(op, Hashed) and op.min_frequency > 1):
        return False
    if not isinstance(op, Vocab):
        return True
    path = transform.vocabulary_file_by_name(feature.name)
    return path is not None and tf.io.gfile.stat(path).length <= _VOCABULARY_BYTES
