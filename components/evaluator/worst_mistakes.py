"""Finds the images that a model is wrong about and most sure of, in the predictions that its metrics are computed from.

Of each batch only the worst rows are kept, each with a thumbnail, so neither the memory nor what Beam sends depends on
the number of images or on their size.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image, ImageOps

from components.compat.tfma.columnar import Floats, Ints
from components.data.saved_model import column_of
from components.evaluator.mistakes import Mistake
from components.evaluator.plan import EvaluationPlan
from components.evaluator.saved_model import Evaluated

_SIDE = 96
"""Greatest width and height of a thumbnail, in pixels."""
_BYTES = 200_000
"""Greatest size of all thumbnails; in base64 they take a third more."""
_PATH = "path"
"""The column with the file of an image."""
_AT = 0.5
"""From this probability on, a binary model predicts the class 1."""


class Search(NamedTuple):
    """What to look for.

    Attributes:
      most: the greatest number of mistakes.
      image: the column of the encoded images.
      label: the column of the classes; None: the label is 0 or 1.
    """

    most: int
    image: str
    label: str | None


def search(plan: EvaluationPlan) -> Search | None:
    """Return what to look for; None if there are no images, or no classes."""
    count = plan.evaluation.worst_mistakes
    if not count or not plan.image_columns or plan.label_columns is None or plan.task == "regression":
        return None
    label = plan.label_columns[0] if plan.task == "multiclass" else None
    return Search(count, plan.image_columns[0], label)


def of_batch(batch: pa.RecordBatch, evaluated: Evaluated, wanted: Search) -> list[Mistake]:
    """Return the worst mistakes of a batch, in any order."""
    classes, probabilities = _predicted(evaluated)
    wrong = np.flatnonzero((classes != evaluated.labels) & np.isfinite(probabilities))
    rows = wrong[np.argsort(-probabilities[wrong], kind="stable")[: wanted.most]]
    chosen = pa.array(rows)
    paths, images = (column_of(batch, name).take(chosen).to_pylist() for name in (_PATH, wanted.image))
    labels = [None] * len(rows) if wanted.label is None else column_of(batch, wanted.label).take(chosen).to_pylist()
    names = evaluated.outputs.get("classes")
    return [
        Mistake(
            name=_text(path),
            label=str(int(evaluated.labels[row])) if label is None else _text(label),
            prediction=str(classes[row]) if names is None else _text([names[row, classes[row]]]),
            probability=float(probabilities[row]),
            thumbnail=_thumbnail(image),
        )
        for row, path, label, image in zip(rows.tolist(), paths, labels, images, strict=True)
    ]


def order(mistake: Mistake) -> tuple[float, str]:
    """Return by what mistakes are ordered, the worst last; the same for any division of the rows."""
    return mistake.probability, mistake.name


def bounded(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return the mistakes without the thumbnails that exceed the size of all."""
    kept, size = [], 0
    for each in mistakes:
        size += len(each.thumbnail) * 3 // 4
        kept.append(each if size <= _BYTES else replace(each, thumbnail=""))
    return kept


def _predicted(evaluated: Evaluated) -> tuple[Ints, Floats]:
    """Return the predicted class of each row, and its probability."""
    predictions = evaluated.predictions.astype(np.float64)
    if predictions.ndim == 1:
        positive = predictions >= _AT
        return positive.astype(np.int64), np.where(positive, predictions, 1 - predictions)
    classes: npt.NDArray[np.int64] = predictions.argmax(axis=1)
    return classes, predictions[np.arange(len(classes)), classes]


def _text(values: list[bytes | int | float] | None) -> str:
    """Return the only value of a row as text."""
    value = values[0] if values else ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _thumbnail(values: list[bytes] | None) -> str:
    try:
        with Image.open(io.BytesIO(values[0] if values else b"")) as image:
            # A JPEG is decoded at a fraction of its size.
            image.draft(None, (_SIDE, _SIDE))
            small = ImageOps.exif_transpose(image.convert("L" if image.mode == "L" else "RGB"))
        small.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=75)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        # Pillow has several errors for what is no image.
        return ""
    return base64.b64encode(file.getvalue()).decode()
