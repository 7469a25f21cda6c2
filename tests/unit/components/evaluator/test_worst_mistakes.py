"""Worst mistakes of a batch: selection, names and thumbnails."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from components.evaluator import mistakes, worst_mistakes
from components.evaluator.config import EvaluationConfig
from components.evaluator.mistakes import Mistake
from components.evaluator.plan import EvaluationPlan
from components.evaluator.saved_model import Evaluated
from components.evaluator.worst_mistakes import Search
from components.features.expression import Label

NAMES = [b"cat", b"dog", "é".encode()]


def jpeg(width: int, height: int, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height), 128 if mode == "L" else (200, 100, 0)).save(file, "JPEG")
    return file.getvalue()


def lists(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else [value] for value in values], pa.large_list(pa.large_binary()))


def batch(images: list[bytes | None], labels: list[bytes], paths: list[bytes] | None = None) -> pa.RecordBatch:
    columns = {"photo": lists(images), "kind": lists(labels)}
    return pa.RecordBatch.from_pydict(columns if paths is None else {**columns, "path": lists(paths)})


def thumbnail(mistake: Mistake) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(mistake.thumbnail, validate=True)))


def test_worst_mistakes_have_the_greatest_probability_of_the_wrong_class() -> None:
    probabilities = np.array(
        [[0.9, 0.1, 0], [0.2, 0.7, 0.1], [0, 0.05, 0.95], [0.1, 0.3, 0.6], [np.nan] * 3], np.float32
    )
    labels = np.array([0, 0, 1, -1, 1])
    rows = batch(
        [jpeg(300, 150), jpeg(40, 20, "L"), jpeg(1000, 2000), None, jpeg(1, 1)],
        [b"cat", b"cat", b"dog", b"owl", b"dog"],
        [b"a/1", b"a/2", b"b/1", b"c/1", b"b/2"],
    )
    evaluated = Evaluated(labels, probabilities, {}, {"classes": np.array([NAMES] * 5, object)})
    worst = worst_mistakes.find_worst(rows, evaluated, Search(3, "photo", "kind"))
    described = [(mistake.name, mistake.label, mistake.prediction, round(mistake.probability, 6)) for mistake in worst]
    assert described == [("b/1", "dog", "é", 0.95), ("a/2", "cat", "dog", 0.7), ("c/1", "owl", "é", 0.6)]
    assert [thumbnail(mistake).size for mistake in worst[:2]] == [(48, 96), (40, 20)]
    assert [thumbnail(mistake).mode for mistake in worst[:2]] == ["RGB", "L"]
    assert not worst[2].thumbnail
    assert worst_mistakes.find_worst(rows, evaluated, Search(1, "photo", "kind")) == worst[:1]
    assert mistakes.from_json(mistakes.to_json(worst)) == worst


def test_binary_classes_are_named_0_and_1_and_rows_may_lack_a_name() -> None:
    evaluated = Evaluated(np.array([0, 1, 1, 0]), np.array([0.75, 0.875, 0.0625, 0.25]), {}, {})
    rows = batch([b"text"] * 4, [b""] * 4)
    worst = worst_mistakes.find_worst(rows, evaluated, Search(24, "photo", None))
    assert worst == [Mistake("", "1", "0", 0.9375, ""), Mistake("", "0", "1", 0.75, "")]
    # The model's own threshold decides which class it predicts.
    worst = worst_mistakes.find_worst(rows, evaluated, Search(24, "photo", None, 0.25))
    assert [(mistake.prediction, mistake.probability) for mistake in worst] == [("0", 0.9375), ("1", 0.75), ("1", 0.25)]


def test_total_size_of_the_thumbnails_is_bounded() -> None:
    mistake = Mistake("a", "b", "c", 0.5, base64.b64encode(bytes(60_000)).decode())
    bounded = worst_mistakes.limit_thumbnails([mistake] * 5)
    assert bounded == [mistake] * 3 + [replace(mistake, thumbnail="")] * 2


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Search(24, "photo", "kind")),
        ({"task": "binary"}, Search(24, "photo", None)),
        ({"task": "regression"}, None),
        ({"image_columns": ()}, None),
        ({"label_columns": None}, None),
        ({"worst_mistakes": 0}, None),
    ],
)
def test_mistakes_are_searched_only_in_images_with_classes(fields: dict[str, Any], expected: Search | None) -> None:
    evaluation = {"thresholds": {"accuracy": {"min": 0}}, "worst_mistakes": fields.pop("worst_mistakes", 24)}
    plan_fields = {"task": "multiclass", "image_columns": ("photo",), "label_columns": ("kind",), **fields}
    config = EvaluationConfig.model_validate(evaluation)
    plan = EvaluationPlan(evaluation=config, labels=(Label("kind"),), **plan_fields)
    assert worst_mistakes.search(plan, plan.labels[0]) == expected
