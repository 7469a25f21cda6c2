"""The images that a model is wrong about and most sure of, as dataclasses and as the file `mistakes.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

FILE = "mistakes.json"


@dataclass(frozen=True)
class Mistake:
    """An image of which the model predicts another class.

    Attributes:
      name: where the image was read from, such as class/file; empty if that is not known.
      label: its class.
      prediction: the predicted class.
      probability: of the predicted class.
      thumbnail: a small JPEG in base64; empty if the image is missing or cannot be decoded.
    """

    name: str
    label: str
    prediction: str
    probability: float
    thumbnail: str


def to_json(mistakes: Sequence[Mistake]) -> str:
    """Return the content of `mistakes.json`."""
    return json.dumps([asdict(each) for each in mistakes], indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> list[Mistake]:
    """Parse the result of `to_json`."""
    return [Mistake(**each) for each in json.loads(text)]
