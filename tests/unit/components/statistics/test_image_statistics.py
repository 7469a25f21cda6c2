"""The executor computes statistics of images, which the inspection of columns reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow_data_validation as tfdv
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import standard_artifacts

from components.data import image_statistics
from components.ingest.config import DataConfig
from components.statistics.executor import Executor
from pipeline.core.metadata.store import Artifact
from pipeline.inspection import column_statistics
from tests.support.data.sample_images import encode, picture
from tests.support.runs import ingest_runs
from tests.support.runs.ingest_runs import BEAM, data, ingest

pytestmark = pytest.mark.both_lines


def statistics(config: DataConfig, out: Path) -> standard_artifacts.ExampleStatistics:
    """Ingest a data set and compute its statistics."""
    examples = ingest(config, out / "examples", stored="parquet")
    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(out / "statistics")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(BEAM), tmp_dir=str(out / "tmp"), unique_id="1")
    Executor(context).Do({"examples": [examples]}, {"statistics": [artifact]}, {})
    return artifact


def test_images_have_statistics_and_near_duplicates(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for split, count in (("train", 8), ("eval", 4)):
        for number in range(count):
            path = folder / split / f"{number % 2}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            # Both splits begin with the same image; the other images differ.
            image = picture(0 if number == 0 else count * 10 + number, (60 + number, 40))
            path.write_bytes(encode(image.convert("L") if number % 2 else image, "PNG"))
    split = {"by": "files", "train": "train/*/*", "eval": "eval/*/*"}
    artifact = statistics(data(folder, format="images", label="label", split=split), tmp_path)
    assert ingest_runs.splits(artifact) == ["train", "eval"]
    near_duplicates = image_statistics.near_duplicates(artifact.uri)
    (only,) = near_duplicates
    assert (only.column, only.split, only.images, only.found) == ("image", "eval", 4, 1)
    assert [(pair.name, pair.train) for pair in only.pairs] == [("0/0.png", "0/0.png")]
    # The schema is inferred from these statistics, so they must contain only the columns of the examples.
    (dataset,) = tfdv.load_stats_binary(f"{artifact.uri}/Split-train/FeatureStats.pb").datasets
    assert sorted(feature.path.step[0] for feature in dataset.features) == ["image", "label", "path"]

    properties = {"split_names": '["train", "eval"]'}
    stored = Artifact(1, "ExampleStatistics", artifact.uri, "LIVE", 0.0, properties)  # type: ignore[arg-type]
    read = column_statistics._read(stored, "train")
    assert set(read) == {"image", "label", "path"} | {
        f"image.{figure}" for figure in ("width", "height", "mode", "format", "file_bytes", "brightness")
    }
    assert (read["image.width"].least, read["image.width"].greatest, read["image.width"].rows) == (60, 67, 8)
    assert (read["image.height"].mean, read["image.height"].missing) == (40, 0)
    assert read["image.mode"].shares == {"RGB": 0.5, "L": 0.5}
    assert read["image.format"].top == "PNG"
    assert 0 < (read["image.brightness"].least or 0) < (read["image.brightness"].greatest or 0) < 1


def test_rows_without_images_do_not_have_image_statistics(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n" + "".join(f"{number}\n" for number in range(40)))
    artifact = statistics(data(tmp_path / "rows.csv"), tmp_path)
    assert image_statistics.near_duplicates(artifact.uri) == []
    assert [path.name for path in Path(artifact.uri, "Split-train").iterdir()] == ["FeatureStats.pb"]
