"""Tests for the model card: the fields of its schema, the values of a run, and the escaping of names."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipeline.inspection.report import model_card
from tests.support.runs.report_runs import HARM, content_of, write_run
from tests.support.runs.store_writer import Writer


def test_card_has_the_fields_of_the_schema_and_the_values_of_the_run(tmp_path: Path):
    write_run(tmp_path)
    record = json.loads(model_card.to_json(content_of(tmp_path)))
    sections = {"model_details", "model_parameters", "quantitative_analysis", "considerations"}
    assert set(record) == {"schema_version", *sections}
    assert record["model_details"]["name"] == "toy"
    assert record["model_parameters"]["model_architecture"] == "wide_deep"
    assert record["model_parameters"]["data"][0] == {"name": "train", "description": "8 rows of 2 columns"}
    metrics = record["quantitative_analysis"]["performance_metrics"]
    interval = {"lower_bound": "0.6250", "upper_bound": "0.8750"}
    assert {"type": "auc", "value": "0.7500", "confidence_interval": interval, "threshold": "at least 0.5"} in metrics
    assert {"type": "auc", "value": "0.5000", "slice": "company = Blue", "threshold": "at least 0.6"} in metrics
    [_, limit, warning] = [limitation["description"] for limitation in record["considerations"]["limitations"]]
    assert limit.startswith("It does not meet a bound: auc where company = Blue")
    assert warning == "Warning: leakage of refund: expected below 0.998, received 1"


def test_card_contains_the_plots_as_tables(tmp_path: Path):
    write_run(tmp_path)
    text = model_card.to_markdown(content_of(tmp_path))
    assert "| label | as 0 | as 1 |\n|---|---|---|\n| 0 | 387.5 | 137.5 |\n| 1 | 112.5 | 362.5 |" in text
    assert "| mean prediction | mean label | rows |\n|---|---|---|\n| 0.05000 | 0.02500 | 100 |" in text


def test_sections_for_people_are_marked_as_empty(tmp_path: Path):
    write_run(tmp_path)
    card = model_card.make_card(content_of(tmp_path))
    assert card["considerations"]["users"] == card["considerations"]["ethical_considerations"] == []
    assert "### Users\n\n*Not filled in yet.*" in model_card.to_markdown(content_of(tmp_path))


def test_names_from_outside_are_not_markdown(tmp_path: Path):
    write_run(tmp_path, harm=f"{HARM}|[x](http://example.com)`*", task="multiclass")
    text = model_card.to_markdown(content_of(tmp_path))
    assert "alert" in text
    assert not re.search(r"(?<!\\)[<>`\[\]]", text)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    metrics = [row for row in rows if row.startswith(("| auc", "| loss"))]
    assert metrics
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in metrics} == {6, 7}, "two tables"
    matrix = [row for row in rows if row.startswith("| class") or "as class" in row]
    assert len(matrix) == 3
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in matrix} == {5}
    assert "\x1b" not in text


def test_failed_run_has_a_card(tmp_path: Path):
    Writer(tmp_path / "metadata.db").execution("r1", "CsvExampleGen", "FAILED")
    assert "*No metric was evaluated.*" in model_card.to_markdown(content_of(tmp_path))
