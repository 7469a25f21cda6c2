"""The `data` section: what it refuses, and what of it ExampleGen depends on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from components.ingest.config import CsvConfig, DataConfig, IngestConfig


def test_the_part_of_example_gen_leaves_out_what_examples_do_not_depend_on() -> None:
    one = DataConfig(path="a.csv", label="tips", types={"zip": "bytes"})
    other = DataConfig(path="b.csv", label="fare", task="regression", types={"zip": "bytes"})
    assert one.ingest("csv") == other.ingest("csv")
    assert one.ingest("csv") == IngestConfig(format="csv", types={"zip": "bytes"})
    assert one.ingest("csv") != DataConfig(path="a.csv", label="tips", split={"train": 3, "eval": 1}).ingest("csv")


def test_a_section_survives_its_json() -> None:
    section = IngestConfig(format="csv", csv=CsvConfig(delimiter=";", null_values=("NA", "?")), types={"a": "float"})
    assert IngestConfig.model_validate_json(section.model_dump_json()) == section


def test_splits_are_shared_out_in_a_fixed_order() -> None:
    config = DataConfig(path="a", label="b", split={"test": 1, "eval": 2, "train": 7})
    assert list(config.split.buckets().items()) == [("train", 7), ("eval", 2), ("test", 1)]
    assert DataConfig(path="a", label="b").split.buckets() == {"train": 2, "eval": 1}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"split": {"train": 2}}, "split.eval\n  Field required"),
        ({"split": {"train": 2, "eval": 0}}, "greater than 0"),
        ({"split": {"train": 2, "eval": 1, "evall": 1}}, "split.evall\n  Extra inputs are not permitted"),
        ({"csv": {"delimiter": "||"}}, "at most 1 character"),
        ({"csv": {"delimiter": "§"}}, "expected one ASCII character that is no line break, received '§'"),
        ({"csv": {"delimiter": '"'}}, "expected a delimiter and a quote that differ, received '\"' for both"),
        ({"csv": {"encoding": "utf8x"}}, "expected an encoding that Python knows, such as utf-8 or cp1252, received"),
        ({"types": {"zip": "string"}}, "Input should be 'int', 'float' or 'bytes'"),
        ({"format": "parquet"}, "Input should be 'csv' or 'images'"),
        ({"path": ""}, "at least 1 character"),
    ],
)
def test_a_wrong_section_is_refused(section: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as raised:
        DataConfig.model_validate({"path": "a.csv", "label": "tips", **section})
    assert told in str(raised.value)
