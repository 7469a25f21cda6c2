"""Find the images that a model classifies wrongly with the most confidence, among the predictions for its metrics.

Only the worst rows of a batch are kept, with a thumbnail per row, so that neither the memory nor the data that Beam
sends depend on the number or the size of the images.
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

from components.data.saved_model import column_of
from components.evaluator.binning import Floats, Ints
from components.evaluator.mistakes import Mistake
from components.evaluator.plan import EvaluationPlan
from components.evaluator.plot_data import AT
from components.evaluator.saved_model import Evaluated
from components.features.expression import Label

_SIDE = 96
"""Maximum width and height of a thumbnail, in pixels."""
_BYTES = 200_000
"""Maximum size of all thumbnails together; base64 adds a third."""
_PATH = "path"
"""The column with the file of an image."""


class Search(NamedTuple):
    """Which mistakes to collect.

    Attributes:
      most: Maximum number of mistakes.
      image: Column of the encoded images.
      label: Column of the classes; None if the label is 0 or 1.
      at: Smallest probability for which a binary model predicts class 1.
    """

    most: int
    image: str
    label: str | None
    at: float = AT


def search(plan: EvaluationPlan, label: Label, at: float = AT) -> Search | None:
    """Return which mistakes to collect; None without images or classes.

    Args:
      plan: The columns and the number of mistakes.
      label: The label.
      at: Smallest probability for which a binary model predicts class 1.
    """
    count = plan.select_label(label).worst_mistakes
    if not count or not plan.image_columns or plan.label_columns is None or plan.task not in ("binary", "multiclass"):
        return None
    return Search(count, plan.image_columns[0], plan.label_columns[0] if plan.task == "multiclass" else None, at)


def find_worst(batch: pa.RecordBatch, evaluated: Evaluated, search: Search) -> list[Mistake]:
    """Return the worst mistakes of a batch, in any order."""
    classes, probabilities = _predict_classes(evaluated, search.at)
    wrong = np.flatnonzero((classes != evaluated.labels) & np.isfinite(probabilities))
    rows = wrong[np.argsort(-probabilities[wrong], kind="stable")[: search.most]]
    chosen = pa.array(rows)
    paths, images = (column_of(batch, name).take(chosen).to_pylist() for name in (_PATH, search.image))
    labels = [None] * len(rows) if search.label is None else column_of(batch, search.label).take(chosen).to_pylist()
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
    """Return the sort key of mistakes, the worst last; it does not depend on how the rows are divided."""
    return mistake.probability, mistake.name


def limit_thumbnails(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Remove the thumbnails beyond the maximum size of all thumbnails."""
    limited, size = [], 0
    for mistake in mistakes:
        size += len(mistake.thumbnail) * 3 // 4
        limited.append(mistake if size <= _BYTES else replace(mistake, thumbnail=""))
    return limited


def _predict_classes(evaluated: Evaluated, at: float) -> tuple[Ints, Floats]:
    """Return the predicted classes and their probabilities, [rows]."""
    predictions = evaluated.predictions.astype(np.float64)
    if predictions.ndim == 1:
        positive = predictions >= np.float32(at)
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
            # Decode a JPEG at a fraction of its size.
            image.draft(None, (_SIDE, _SIDE))
            small = ImageOps.exif_transpose(image.convert("L" if image.mode == "L" else "RGB"))
        small.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=75)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        # Pillow raises several errors for data that are not an image.
        return ""
    return base64.b64encode(file.getvalue()).decode()
