"""Tests for files of pretrained vectors in a config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring import preflight
from pipeline.authoring.config import Loaded, load


def load_config(folder: Path, op: dict[str, Any], kind: str = "mlp") -> Loaded:
    sections = {
        "data": {"path": str(folder / "rows.csv"), "label": "liked"},
        "features": {"columns": {"review": op}},
        "model": {"kind": kind},
        "evaluation": {"thresholds": {"auc": {"min": 0.5}}},
    }
    (folder / "rows.csv").write_text("review,liked\ngood,1\nbad,0\n")
    (folder / "words.vec").write_text("good 1 0\nbad 0 1\n")
    path = folder / "rows.yaml"
    path.write_text(yaml.safe_dump(sections))
    return load(str(path))


def find_refusal(folder: Path, op: dict[str, Any], kind: str = "mlp") -> str:
    with pytest.raises(InputError) as refusal:
        preflight.check_data(load_config(folder, op, kind))
    return " | ".join((refusal.value.headline, *(refusal.value.details or ())))


def test_fitting_file_is_accepted(tmp_path: Path) -> None:
    path = str(tmp_path / "words.vec")
    preflight.check_data(load_config(tmp_path, {"vectors": {"path": path, "width": 2, "words": True}}, "gbt"))
    loaded = load_config(tmp_path, {"text": {"vocabulary": 10, "embedding": 2, "vectors": path}})
    preflight.check_data(loaded)
    assert loaded.config.features.list_code() == (path,)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"vectors": {"path": "PATH", "width": 3}}, "expected 3 numbers per value, received 2; set the width to 2"),
        ({"vectors": {"path": "no.vec", "width": 2}}, "no.vec cannot be read: No such file or directory"),
        ({"vectors": {"path": "s3://b/v.vec", "width": 2}}, "expected a file of this machine, received s3://b/v.vec"),
        ({"vocab": {"vectors": "PATH"}}, "vectors needs embedding, the numbers per value in the file"),
        ({"vocab": {"vectors": "PATH", "embedding": 4}}, "expected 4 numbers per value, received 2"),
        ({"vocab": {"vectors": "PATH", "embedding": 2, "quotient_remainder": 2}}, "remove quotient_remainder"),
        ({"text": {"vectors": "PATH", "embedding": 2}}, "expected vocabulary with vectors, received none"),
    ],
)
def test_unfit_file_is_refused(op: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = str(tmp_path / "words.vec")
    ((name, options),) = op.items()
    assert message in find_refusal(
        tmp_path, {name: {**options, **{k: path for k, v in options.items() if v == "PATH"}}}
    )


@pytest.mark.parametrize("kind", ["linear", "gbt"])
def test_model_without_embeddings_is_refused(kind: str, tmp_path: Path) -> None:
    op = {"vocab": {"vectors": str(tmp_path / "words.vec"), "embedding": 2}}
    assert f"expected a model with embeddings, received {kind}, which has none" in find_refusal(tmp_path, op, kind)
