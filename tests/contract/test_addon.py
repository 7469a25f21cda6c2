"""The add-on in examples/addon, installed in an environment of its own: each of its entries is used by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.runs.command import SUPPORT

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = {
    "data": {"path": "customers.csv", "label": "churned"},
    "features": {"columns": {"age": "z_score", "minutes": "sqrt"}},
    "model": {"kind": "resnet", "hidden": [8, 8]},
    "evaluation": {"metrics": ["auc", "bias"], "thresholds": {"bias": {"max": 0.2}}},
    "serving": {"check": "none"},
    "size": {"max_mb": 50},
    "runtime": {"engine": "threads", "engine_options": {"threads": 3}},
}
BROKEN = {
    "metrics": "broken = no_such_package.metrics:BROKEN",
    "operations": "not_an_op = json:dumps",
    "verbs": "stats = no_such_package.verb",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the Python of an environment with the add-on, and with this environment's packages and the project."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    path = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (path / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    source = shutil.copytree(ROOT / "examples" / "addon", folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", *options, source], check=True)
    metadata = path / "broken_addon-2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-addon\nVersion: 2.0\n")
    groups = (f"[tfx_pipeline.{kind}]\n{entry}\n" for kind, entry in BROKEN.items())
    (metadata / "entry_points.txt").write_text("".join(groups))
    return python


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table and a config that uses the add-on."""
    folder = tmp_path_factory.mktemp("project")
    rows = [f"{20 + row},{row * 7 % 90},{row % 2}" for row in range(40)]
    (folder / "customers.csv").write_text("\n".join(["age,minutes,churned", *rows]) + "\n")
    (folder / "customers.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


def run(python: str, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder of the project, without the paths of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *words], cwd=project, env=environment, capture_output=True, text=True, check=False)


def command(python: str, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(python, project, str(ROOT / "runner.py"), *words)


@pytest.fixture(scope="module")
def used(python: str, project: Path) -> dict[str, Any]:
    """Return what a process computed with the add-on."""
    ended = run(python, project, str(SUPPORT / "programs" / "addon_program.py"), "customers.yaml")
    assert ended.returncode == 0, ended.stderr
    results: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return results


def test_config_names_the_entries(used: dict[str, Any]) -> None:
    assert used["operations"] == ["z_score", "sqrt"]
    assert used["size"] == 50
    assert used["is_pickled"], "processes of a run receive the config"
    assert used["heavy"] == [], "a config must not import anything heavy"
    recorded = json.loads(used["recorded"])
    assert recorded["size"] == {"max_mb": 50}
    assert recorded["model"] == {"kind": "resnet", "hidden": [8, 8]}


def test_node_is_built_before_the_push(used: dict[str, Any]) -> None:
    assert used["upstream"]["SizeGate"] == ["Trainer"]
    assert "SizeGate" in used["upstream"]["Pusher"]
    assert used["parameters"] == {"max_mb": 50, "code_digest": used["parameters"]["code_digest"]}
    assert len(used["parameters"]["code_digest"]) == 16, "an upgrade of the package runs the node again"
    assert "--direct_num_workers=3" in used["beam_args"]


def test_operation_metric_and_model_compute(used: dict[str, Any]) -> None:
    assert used["feature"] == pytest.approx([0.5, 2, -3, 0], abs=1e-6)
    assert used["bias"] == pytest.approx((0.5 - 0.25 - 1) / 3, abs=1e-12)
    assert used["output_shape"] == [None, 1]


def test_json_schema_contains_the_entries(python: str, project: Path) -> None:
    ended = command(python, project, "schema")
    assert ended.returncode == 0, ended.stderr
    assert "warning: operations.not_an_op, which broken-addon 2.0 adds: expected" in ended.stderr
    validator = jsonschema.Draft202012Validator(json.loads(ended.stdout))
    validator.validate(CONFIG)
    assert not validator.is_valid(CONFIG | {"size": {"max_mb": "large"}})
    assert not validator.is_valid(CONFIG | {"features": {"columns": {"minutes": {"sqrt": {"bins": 3}}}}})
    definitions = validator.schema["$defs"]
    assert {"auc", "bias"} <= set(definitions["EvaluationConfig"]["properties"]["metrics"]["items"]["examples"])


@pytest.mark.parametrize(("verb", "names"), [("init", ",resnet}"), ("run", "portable, threads")])
def test_help_lists_the_names(python: str, project: Path, verb: str, names: str) -> None:
    assert names in " ".join(command(python, project, verb, "--help").stdout.split())


def test_verb_and_orchestrator_are_commands(python: str, project: Path) -> None:
    ended = command(python, project, "count-features", "--config", "customers.yaml")
    assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr
    shown = command(python, project, "--help").stdout
    assert "count-features" in shown
    assert "added by the package example-addon 0.1.0" in shown
    ended = command(python, project, "run", "--script", "--config", "customers.yaml", "--output", "run.sh")
    assert ended.returncode == 0, ended.stderr
    assert f"runner.py run --local --config {project / 'customers.yaml'}" in (project / "run.sh").read_text()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("size={max_mb: 0}", "size.max_mb"),
        ("size={max_mbs: 1}", "did you mean 'max_mb'?"),
        ("siz={max_mb: 1}", "unknown key; did you mean 'size'?"),
        ("runtime.engine_options={threads: 0}", "runtime.engine_options.threads: expected a value greater than 0"),
        ("features.columns.age=sqr", "unknown operation 'sqr'; did you mean 'sqrt'?"),
        ("features.columns.age={sqrt: {bins: 3}}", "unknown key"),
        ("model.kind=resnetz", "did you mean 'resnet'?"),
        ("evaluation.metrics=[biass]", "unknown metric 'biass'; did you mean 'bias'?"),
    ],
)
def test_mistake_in_a_section_is_reported_as_in_any_section(
    python: str, project: Path, assignment: str, message: str
) -> None:
    ended = command(python, project, "validate", "--config", "customers.yaml", "--set", assignment)
    assert ended.returncode == 2
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("words", "received"),
    [
        (
            ("validate", "--set", "evaluation.metrics=[broken]"),
            "ModuleNotFoundError: No module named 'no_such_package'",
        ),
        (("validate", "--set", "features.columns.age=not_an_op"), "a function"),
        (("stats",), "ModuleNotFoundError: No module named 'no_such"),
    ],
)
def test_add_on_that_cannot_be_loaded_is_named(python: str, project: Path, words: Sequence[str], received: str) -> None:
    options = ["--config", "customers.yaml"] if words[0] == "validate" else []
    ended = command(python, project, *words, *options)
    assert ended.returncode == 2
    assert "which broken-addon 2.0 adds: expected" in ended.stderr
    assert f"received {received}" in ended.stderr
    assert "pip uninstall broken-addon" in ended.stderr
    assert "Traceback" not in ended.stderr
