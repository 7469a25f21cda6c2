"""Tests for the entry point of Vertex AI's containers: its error messages and the outputs of drivers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.orchestration import vertex_entrypoint
from tests.support.runs.command import ROOT, SECONDS, Ended
from tests.support.servers.forked_command import ForkedCommand

pytestmark = pytest.mark.both_lines


def run_entrypoint(
    folder: Path, command: str, executor: str, outputs: dict[str, str], parameters: dict[str, str]
) -> Ended:
    """Run the entry point as a container does, but in a fork of the node server, and wait until it has ended.

    tests/unit/test_module_names.py and tests/e2e/test_vertex.py start it in a new process.

    Args:
      folder: Folder of the outputs.
      command: `execute` or `drive`.
      executor: Import path of the executor or driver.
      outputs: Types of the output artifacts, by key.
      parameters: Values of the parameters, by name.
    """
    names = {key: f"projects/1/locations/x/metadataStores/default/artifacts/{key}" for key in outputs}
    executor_input = {
        "inputs": {"parameterValues": parameters},
        "outputs": {
            "artifacts": {
                key: {"artifacts": [{"name": names[key], "uri": str(folder / key), "type": {"schemaTitle": title}}]}
                for key, title in outputs.items()
            },
            "outputFile": str(folder / "1" / "run-7" / "SchemaGen_-5" / "executor_output.json"),
        },
    }
    types = {"parameters": {name: {"parameterType": "STRING"} for name in parameters}}
    arguments = [command, "people", "--executor_class_path", executor]
    arguments += ["--json_serialized_invocation_args", json.dumps(executor_input)]
    arguments += [
        "--json_serialized_inputs_spec_args",
        json.dumps(types),
        "--direct_num_workers=1",
        "--sdk_container_image=none",
    ]
    return Ended(*ForkedCommand(vertex_entrypoint.main, arguments, ROOT, os.environ).wait(SECONDS))


def test_unexpected_error_is_reported_with_its_traceback(tmp_path: Path):
    process = run_entrypoint(
        tmp_path, "execute", "components.data_gate.curated_schema.Executor", {"schema": "tfx.Schema"}, {"text": "no"}
    )
    assert process.exit_code == 1
    assert "Traceback" in process.err
    *_, error, remedy = process.err.splitlines()
    assert error.startswith("error: components.data_gate.curated_schema.Executor failed: ParseError: 1:1")
    assert remedy == "  remedy: see the full cause above, in the task's log"
    assert not (tmp_path / "1").exists()


def test_error_of_this_project_is_reported_with_its_remedy(tmp_path: Path):
    parameters = {"input_base": str(tmp_path), "input_config": '{"splits": [{"name": "all-0", "pattern": "*.csv"}]}'}
    process = run_entrypoint(
        tmp_path, "drive", "components.ingest.driver.Driver", {"examples": "tfx.Examples"}, parameters
    )
    assert process.exit_code == 1
    *_, error, remedy = process.err.splitlines()
    assert error.startswith("error: data.path: no file matches")
    assert remedy.startswith("  remedy: set data.path")


def test_driver_writes_its_output_parameters(tmp_path: Path):
    parameters = {"input_config": '{"splits": [{"name": "all-0", "pattern": "SELECT * FROM people"}]}'}
    driver = "tfx.components.example_gen.driver.QueryBasedDriver"
    process = run_entrypoint(tmp_path, "drive", driver, {"examples": "tfx.Examples"}, parameters)
    assert process.exit_code == 0, process.err
    record = json.loads((tmp_path / "1" / "run-7" / "SchemaGen_-5" / "executor_output.json").read_text())
    assert record["parameterValues"]["span"] == 0
    assert json.loads(record["parameterValues"]["input_config"])["splits"][0]["pattern"] == "SELECT * FROM people"
    [examples] = record["artifacts"]["examples"]["artifacts"]
    assert examples["uri"] == str(tmp_path / "examples")
