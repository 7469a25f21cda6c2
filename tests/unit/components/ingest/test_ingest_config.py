"""Invalid values of the `data` section are rejected, and ExampleGen's plan contains only relevant fields."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from components.ingest.config import SAMPLING_WEIGHT, DataConfig, IngestConfig, IngestedSample, SpansConfig, SplitConfig
from components.ingest.text_config import CsvConfig


def test_example_gen_plan_excludes_fields_without_effect_on_examples() -> None:
    config = DataConfig(path=("a.csv",), label="tips", types={"zip": "bytes"})
    other_config = DataConfig(
        path=("b.csv",), label="fare", task="regression", types={"zip": "bytes"}, spans=SpansConfig(latest=3)
    )
    # The hash of a row excludes the label, so the plan of a split by hash depends on the label.
    assert config.ingest("csv") != other_config.ingest("csv")
    split = {"split": SplitConfig(by="column", columns=("fold",), train=("0",), eval=("1",))}
    plan = config.model_copy(update=split).ingest("csv")
    assert plan == other_config.model_copy(update=split).ingest("csv")
    assert plan == IngestConfig(format="csv", types={"zip": "bytes"}, **split)
    other_config = DataConfig(path=("a.csv",), label="tips", types={"zip": "bytes"}, split=SplitConfig(train=3, eval=1))
    assert config.ingest("csv") != other_config.ingest("csv")
    assert config.ingest("csv") != config.ingest("parquet")


def test_section_is_restored_from_json() -> None:
    section = IngestConfig(format="csv", csv=CsvConfig(delimiter=";", null_values=("NA", "?")), types={"a": "float"})
    assert IngestConfig.model_validate_json(section.model_dump_json()) == section
    split = SplitConfig(by="time", columns=("t",), train=8, eval=2, gap=604_800)
    section = IngestConfig(format="parquet", columns=("t", "x"), split=split)
    assert IngestConfig.model_validate_json(section.model_dump_json()) == section


def test_splits_have_a_fixed_order() -> None:
    config = DataConfig.model_validate({"path": "a", "label": "b", "split": {"test": 1, "eval": 2, "train": 7}})
    assert list(config.split.parts().items()) == [("train", 7), ("eval", 2), ("test", 1)]
    assert config.split.names() == ["train", "eval", "test"]
    assert DataConfig.model_validate({"path": "a", "label": "b"}).split.parts() == {"train": 2, "eval": 1}


def test_single_string_is_read_as_a_list() -> None:
    split = {"by": "column", "columns": "year", "train": "2019", "eval": ["2020", "2021"]}
    config = DataConfig.model_validate({"path": "a.csv", "label": "b", "split": split})
    assert config.path == ("a.csv",)
    assert config.split.columns == ("year",)
    assert config.split.parts() == {"train": ("2019",), "eval": ("2020", "2021")}
    assert DataConfig.model_validate({"path": ["a", "b"], "label": "c"}).path == ("a", "b")


@pytest.mark.parametrize(
    ("gap", "seconds"), [(90, 90), (1.5, 1.5), ("30s", 30), ("90 m", 5_400), ("12h", 43_200), ("7d", 604_800)]
)
def test_gap_may_be_a_duration(gap: object, seconds: float) -> None:
    split = {"by": "time", "columns": "t", "train": 1, "eval": 1, "gap": gap}
    assert DataConfig.model_validate({"path": "a", "label": "b", "split": split}).split.gap == seconds


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"split": {"train": 2}}, "split.eval\n  Field required"),
        ({"split": {"train": 2, "eval": 0}}, "expected a share such as 8, or texts"),
        ({"split": {"train": 2, "eval": 1, "evall": 1}}, "split.evall\n  Extra inputs are not permitted"),
        ({"split": {"train": "x", "eval": 1}}, "by: hash takes a share such as 8 for train, received ('x',)"),
        ({"split": {"by": "group", "train": 1, "eval": 1}}, "by: group needs the columns that define a group"),
        (
            {"split": {"by": "time", "columns": ["a", "b"], "train": 1, "eval": 1}},
            "by: time needs one column, such as columns: [name], received ['a', 'b']",
        ),
        (
            {"split": {"by": "column", "columns": "a", "train": 1, "eval": "x"}},
            "by: column takes values of the column for train, received 1",
        ),
        ({"split": {"by": "files", "columns": "a", "train": "x", "eval": "y"}}, "by: files does not use columns"),
        ({"split": {"gap": "7d", "train": 1, "eval": 1}}, "gap needs by: time, received by: hash"),
        (
            {"split": {"by": "time", "columns": "t", "gap": "7 days", "train": 1, "eval": 1}},
            "expected seconds, or a duration such as 90m, 12h, 7d or 2w, received '7 days'",
        ),
        ({"bad_rows": {"max_fraction": 1.5}}, "less than or equal to 1"),
        ({"bad_rows": {"action": "drop"}}, "Input should be 'quarantine' or 'fail'"),
        ({"spans": {"end": 3}}, "end needs a start that is not after it, received None and 3"),
        ({"spans": {"start": 5, "end": 3}}, "end needs a start that is not after it, received 5 and 3"),
        ({"spans": {"start": 1, "end": 3, "latest": 2}}, "give either latest, or start and end"),
        ({"csv": {"delimiter": "||"}}, "at most 1 character"),
        ({"csv": {"delimiter": "§"}}, "expected one ASCII character that is not a line break, received '§'"),
        ({"csv": {"delimiter": '"'}}, "expected a delimiter and a quote that differ, received '\"' for both"),
        ({"csv": {"encoding": "utf8x"}}, "expected an encoding of Python, such as utf-8 or cp1252, received"),
        ({"tfrecord": {"payload": "features"}}, "Input should be 'example' or 'sequence_example'"),
        ({"types": {"zip": "string"}}, "Input should be 'int', 'float' or 'bytes'"),
        ({"images": {"folder": "photos"}}, "folder needs path_column, the column with the names of the image files"),
        ({"images": {"column": "photo"}}, "column needs path_column, the column with the names of the image files"),
        ({"images": {"path_column": "image"}}, "set column, such as column: photo"),
        (
            {"path": [], "bigquery": {"query": "SELECT 1"}, "images": {"path_column": "file"}},
            "images.path_column needs a table in files, not a BigQuery query",
        ),
        ({"format": "orc"}, "Input should be 'csv', 'parquet', 'tfrecord', 'bigquery' or 'images'"),
        ({"format": "bigquery"}, "expected both format: bigquery and a bigquery section with the query, or neither"),
        ({"bigquery": {"query": "SELECT 1"}}, "expected a path, or a bigquery section with a query, and not both"),
        ({"path": []}, "expected a path, or a bigquery section with a query, and not both"),
        (
            {"path": [], "bigquery": {"query": "SELECT 1"}, "split": {"by": "files", "train": "x", "eval": "y"}},
            "split.by: files needs files, not a BigQuery query",
        ),
    ],
)
def test_wrong_section_is_rejected(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        DataConfig.model_validate({"path": "a.csv", "label": "tips", **section})
    assert message in str(raised.value)


def test_sample_of_a_label_is_weighted_by_the_inverse_share() -> None:
    config = DataConfig(path=("d.csv",), label="tips > 2", sample={"label": {0: 0.1, 1: 0.5}})
    assert config.weight == SAMPLING_WEIGHT
    sample = config.ingest("csv").sample
    assert sample is not None
    assert [(part.condition, part.is_negated, part.share) for part in sample.parts] == [
        ("tips > 2", True, 0.1),
        ("tips > 2", False, 0.5),
    ]
    words = DataConfig(path=("d.csv",), label="class", task="multiclass", sample={"label": {"it's": 0.1, "7": 0.5}})
    sample = words.ingest("csv").sample
    assert sample is not None
    assert [part.condition for part in sample.parts] == ['class == "it\'s"', "class == 7"]
    assert DataConfig(path=("d.csv",), label="a", sample=0.5).ingest("csv").sample == IngestedSample(
        fraction=0.5, parts=()
    )
    assert DataConfig(path=("d.csv",), label="a").ingest("csv").sample is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"label": "a", "weight": "w", "sample": {"label": {0: 0.1}}},
            "expected none beside sample.label, received 'w'",
        ),
        (
            {"label": "a", "task": "regression", "sample": {"label": {0: 0.1}}},
            "task binary or multiclass, received reg",
        ),
        (
            {"labels": {"a": "a", "b": "b"}, "sample": {"label": {0: 0.1}}},
            "expected one label .* received several labels",
        ),
        (
            {"label": "a > 1", "sample": {"label": {"yes": 0.1}}},
            "expected the values 0 and 1 of 'a > 1', received 'yes'",
        ),
        ({"label": "a", "sample": 0}, "greater than 0"),
    ],
)
def test_sample_that_cannot_be_weighted_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataConfig(path=("d.csv",), **section)
