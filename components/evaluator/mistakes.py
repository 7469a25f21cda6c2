"""The images that a model classifies wrongly with the most confidence, as dataclasses and in `mistakes.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

FILE = "mistakes.json"


@dataclass(frozen=True)
class Mistake:
    """An image for which the model predicts a wrong class.

    Attributes:
      name: File that the image was read from, such as class/file; empty if it is unknown.
      label: Class of the image.
      prediction: The predicted class.
      probability: Probability of the predicted class.
      thumbnail: A small JPEG in base64; empty if the image is missing or cannot be decoded.
    """

    name: str
    label: str
    prediction: str
    probability: float
    thumbnail: str


def to_json(mistakes: Sequence[Mistake]) -> str:
    """Return the content of `mistakes.json`."""
    return json.dumps([asdict(mistake) for mistake in mistakes], indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> list[Mistake]:
    """Parse the result of `to_json`."""
    return TypeAdapter(list[Mistake]).validate_json(text)
