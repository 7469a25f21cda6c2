"""Tests for configs with images: the models that can read them, augmentation, and input folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from components.base.errors import InputError
from pipeline.authoring.config import load

COLOUR = {"image": {"height": 8, "width": 8, "channels": 3}}
GREY = {"image": {"height": 8, "width": 8}}
MOBILE = {"kind": "application", "application": "MobileNet"}


def load_config(folder: Path, image: Any = GREY, **sections: Any) -> Any:
    config = {
        "data": {"path": "data", "format": "images", "label": "label", "task": "multiclass"},
        "features": {"columns": {"image": image} if image else {"path": "vocab"}},
        "evaluation": {"thresholds": {"accuracy": {"min": 0.5}}},
        **sections,
    }
    path = folder / "photos.yaml"
    path.write_text(yaml.safe_dump(config))
    return load(str(path))


@pytest.mark.parametrize(
    ("image", "model"),
    [
        (GREY, {"kind": "mlp"}),
        (GREY, {"kind": "cnn", "filters": [8]}),
        (COLOUR, MOBILE),
        (COLOUR, {**MOBILE, "weights": "a.h5", "frozen_steps": 10}),
    ],
)
def test_networks_can_read_images(tmp_path: Path, image: Any, model: Any) -> None:
    config = load_config(tmp_path, image, model=model, training={"augmentation": {"flip": True}})
    assert config.config.training.augmentation.flip


@pytest.mark.parametrize(
    ("image", "sections", "message"),
    [
        (GREY, {"model": {"kind": "gbt"}}, "the trees of gbt do not read images"),
        (None, {"model": {"kind": "cnn"}}, "cnn reads images; give a column the operation image"),
        (GREY, {"model": MOBILE}, "application reads images of 3 channels"),
        (COLOUR, {"model": {"kind": "application"}}, "needs the name of one, such as application: EfficientNetB0"),
        (COLOUR, {"model": {**MOBILE, "frozen_steps": 5}}, "frozen_steps needs weights"),
        (GREY, {"model": {"kind": "mlp", "filters": [8]}}, "filters: expected kind cnn, received mlp; remove filters"),
        (
            COLOUR,
            {"model": {**MOBILE, "weights": "a.h5", "frozen_steps": 5}, "training": {"weight_decay": 0.1}},
            "expected 0 with model.frozen_steps",
        ),
        (None, {"training": {"augmentation": {"crop": 0.1}}}, "images are changed, and no column has the operation"),
        (
            GREY,
            {"features": {"columns": {"image": GREY, "path": "vocab"}}, "training": {"augmentation": {"mixup": 0.2}}},
            "mixup: expected no features but images",
        ),
        (
            GREY,
            {
                "data": {"path": "data", "format": "images", "label": "label", "task": "regression"},
                "training": {"augmentation": {"mixup": 0.2}},
                "evaluation": {"thresholds": {"mean_absolute_error": {"max": 1}}},
            },
            "mixup: expected the task binary or multiclass, whose losses it blends, received regression",
        ),
        (None, {"training": {"cache": "pixels"}}, "pixels of images are kept in memory, and no column has"),
        (
            GREY,
            {"training": {"folds": 3, "augmentation": {"mixup": 0.2}}},
            "mixup: a blend of rows of two folds has no fold",
        ),
    ],
)  # fmt: skip
def test_incompatible_sections_are_rejected(tmp_path: Path, image: Any, sections: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_config(tmp_path, image, **sections)
    assert message in " ".join([caught.value.headline, *caught.value.details])


@pytest.mark.parametrize(
    ("images", "encoded"),
    [
        ({}, ("image", "other")),
        ({"encoded_columns": ["other"]}, ("other",)),
        ({"encoded_columns": []}, ()),
        ({"path_column": "file"}, ("other",)),
    ],
)
def test_columns_with_the_operation_image_are_checked_at_ingest(
    tmp_path: Path, images: dict[str, Any], encoded: tuple[str, ...]
) -> None:
    data = {"path": "data", "format": "parquet", "label": "label", "task": "multiclass", "images": images}
    columns = {"image": GREY, "other": {"image": {"height": 4, "width": 4}}, "x": "z_score"}
    config = load_config(tmp_path, data=data, features={"columns": columns}, model={"kind": "cnn"}).config
    assert config.source().images.encoded_columns == encoded
    assert config.data_of(("rows",)).images.encoded_columns == encoded


def test_folder_of_images_is_an_input_of_the_data(tmp_path: Path) -> None:
    data = {"path": "a.csv", "label": "label", "task": "multiclass"}
    places = load_config(
        tmp_path, data={**data, "images": {"path_column": "file", "folder": "photos"}}
    ).config.data.places
    assert places == [("data.path", "a.csv"), ("data.images.folder", "photos")]
    assert load_config(tmp_path, data=data).config.data.places == [("data.path", "a.csv")]
