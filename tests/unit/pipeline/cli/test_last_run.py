"""Tests for commands without --config, which use the last run in the output folder and print its ID."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.authoring.config import load, load_recorded
from tests.support.data.shipped_configs import CONFIGS
from tests.support.runs.command import ROOT, light_command
from tests.support.runs.store_writer import Writer


def record_run(output: Path, pipeline: str, run: str, *assignments: str) -> None:
    """Record a run with its config in the store of a pipeline.

    Args:
      output: Output folder of all pipelines.
      pipeline: Name of the pipeline.
      run: ID of the run.
      assignments: Changes to the config of the taxi pipeline.
    """
    config = load(str(ROOT / "configs" / "taxi.yaml"), [f"pipeline.name={pipeline}", *assignments]).config
    (output / pipeline).mkdir(parents=True, exist_ok=True)
    writer = Writer(output / pipeline / "metadata.db")
    writer.run(run, config.model_dump_json(by_alias=True))
    writer.execution(run, "ExampleGen")


def test_config_of_the_last_run_is_used(tmp_path: Path):
    record_run(tmp_path, "older", "r1", "model.kind=linear")
    record_run(tmp_path, "newer", "r2", "model.kind=mlp")
    ended = light_command("validate", "--output", str(tmp_path))
    assert (ended.exit_code, ended.err) == (0, f"using the last run, r2 in {tmp_path / 'newer'}\n")
    assert ended.out.startswith("config of run r2: valid. ")
    assert ended.out.endswith(", model mlp\n")
    ended = light_command("validate", "--output", str(tmp_path), "--set", "model.kind=linear")
    assert ended.out.endswith(", model linear\n")
    ended = light_command("validate", "--output", str(tmp_path), "--set", "model.kind=linea")
    assert ended.exit_code == 2
    assert "--set model.kind=linea: model.kind: expected one of" in ended.err


def test_runs_and_push_folder_are_found_in_the_output_folder(tmp_path: Path):
    record_run(tmp_path, "churn", "r1", "runtime.output=elsewhere")
    runs = light_command("runs", "--json", "--output", str(tmp_path))
    assert [json.loads(line)["run"] for line in runs.out.splitlines()] == ["r1"]
    assert runs.err == f"using the last run, r1 in {tmp_path / 'churn'}\n"
    models = light_command("models", "--output", str(tmp_path))
    assert (models.exit_code, models.out) == (0, f"{tmp_path / 'churn' / 'pushed'}: no version was pushed yet\n")


def test_runs_without_a_config_are_listed(tmp_path: Path):
    (tmp_path / "stock").mkdir()
    Writer(tmp_path / "stock" / "metadata.db").execution("r1", "ExampleGen")
    assert " ".join(light_command("runs", "--output", str(tmp_path)).out.split()).startswith("run pipeline state")
    refused = light_command("validate", "--output", str(tmp_path))
    assert refused.exit_code == 2
    assert f"expected --config, or a run in the folder {tmp_path}, found neither" in refused.err


@pytest.mark.parametrize("verb", ["predict --data x.csv --into y", "validate", "serve", "models promote 1", "due"])
def test_missing_run_is_reported(verb: str, tmp_path: Path):
    ended = light_command(*verb.split(), "--output", str(tmp_path / "nothing"))
    assert (ended.exit_code, ended.out) == (2, "")
    assert f"expected --config, or a run in the folder {tmp_path / 'nothing'}, found neither" in ended.err
    assert "remedy: name the folder of the runs with --output DIR, or a config with --config FILE" in ended.err


def test_error_of_the_store_is_reported_if_there_is_no_other_store(tmp_path: Path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metadata.db").write_bytes(b"not a database, but long enough to look like one" * 20)
    ended = light_command("runs", "--output", str(tmp_path))
    assert ended.exit_code == 1
    assert "cannot be opened" in ended.err
    record_run(tmp_path, "sound", "r1")
    assert light_command("runs", "--output", str(tmp_path)).exit_code == 0


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_recorded_config_equals_the_original_config(file: Path):
    written = load(str(file)).config
    recorded = load_recorded("recorded", json.loads(written.model_dump_json(by_alias=True))).config
    assert recorded == written
    assert recorded.data.spans.model_fields_set == written.data.spans.model_fields_set


def test_recorded_range_of_spans_is_accepted():
    assignments = ["data.path=data/{SPAN}/*.csv", "data.spans={start: 2, end: 5}"]
    written = load(str(ROOT / "configs" / "taxi.yaml"), assignments).config
    recorded = load_recorded("recorded", json.loads(written.model_dump_json(by_alias=True))).config
    assert (recorded.data.spans.start, recorded.data.spans.end) == (2, 5)
