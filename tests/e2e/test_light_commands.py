"""The verbs that need no TensorFlow answer without importing it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.runs.command import Ended, light_process, make_data, start, wait

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--help",), "python runner.py --local"),
        (("run", "--help"), "--resume"),
        (
            ("validate", "--config", "configs/taxi.yaml"),
            "configs/taxi.yaml: valid. 14 features, label 'tips > 0.2 * fare' (binary), model wide_deep",
        ),
        (("models", "--models", "data"), "data: no version was pushed yet"),
        (("models", "verify", "--models", "data"), "data: no version was pushed yet"),
        (("models", "promote", "--help"), "--stage"),
        (("models", "canary", "--help"), "--percent"),
        (("models", "rollback", "--help"), "VERSION"),
        (("runs", "serve", "--help"), "--port"),
        (("doctor",), "Python"),
        (("schema",), '"title": "Config"'),
    ],
)
def test_verb_that_needs_no_tensorflow(arguments: tuple[str, ...], shown: str):
    make_data("taxi")
    ended = light_process(*arguments)
    assert (ended.exit_code, ended.err) == (0, "")
    assert shown in ended.out


def test_json_schema_knows_every_section():
    schema = json.loads(light_process("schema").out)
    assert {"data", "features", "model", "training", "evaluation", "push", "runtime"} <= set(schema["properties"])


def test_ctrl_c_while_it_imports_ends_without_a_traceback(tmp_path: Path):
    begun, never = tmp_path / "begun", tmp_path / "never"
    os.mkfifo(begun)
    os.mkfifo(never)
    (tmp_path / "yaml.py").write_text(f"open({str(begun)!r}, 'w').close()\nopen({str(never)!r}).read()\n")
    process = start("validate", "--config", "configs/taxi.yaml", environment={"PYTHONPATH": str(tmp_path)})
    begun.read_text()
    process.send_signal(signal.SIGINT)
    assert wait(process) == Ended(130, "", "")
