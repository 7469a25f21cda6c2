"""Tests of the repository that `scaffold project` writes; the last one runs every step of its CI file."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from pipeline.authoring.config import load
from pipeline.cli.main import main
from tests.support.runs.command import ROOT

_EXPRESSION = re.compile(r"\$\{\{ *([\w.]+) *\}\}")


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "Churn Model"
    assert main(["scaffold", "project", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: cd {shlex.quote(str(folder))} && make help"
    return folder


def read_workflow(project: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load((project / ".github" / "workflows" / "ci.yml").read_text())
    return workflow


def list_steps(workflow: Mapping[str, Any], contexts: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the command and the environment of each `run` step, in the order in which GitHub runs the jobs."""

    def resolve(text: str) -> str:
        return _EXPRESSION.sub(lambda match: contexts[match[1]], text)

    done: list[str] = []
    for name, job in workflow["jobs"].items():
        assert job.get("needs", done[-1:] or None) in (None, *done), "the jobs are listed in their order"
        done.append(name)
        for step in job["steps"]:
            if "run" in step:
                environment = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
                yield step["run"], {key: resolve(str(value)) for key, value in environment.items()}


def test_repository_names_the_pipeline_everywhere(project: Path) -> None:
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert files == {
        *(".github/workflows/ci.yml", ".gitignore", "Dockerfile", "Makefile", "README.md", "compare.py"),
        *("config.yaml", "network.py", "pyproject.toml", "tests/test_network.py", "data/sample.csv"),
        "data/holdout.csv",
    }
    assert not [name for name in files if "@NAME@" in (project / name).read_text()]
    assert load(str(project / "config.yaml")).config.pipeline.name == "churn-model"


def test_code_of_the_repository_passes_its_own_lint(project: Path) -> None:
    for arguments in (["check", "."], ["format", "--check", "."]):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments], cwd=project, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout


def test_steps_of_the_ci_file_are_targets_of_the_makefile(project: Path) -> None:
    makefile = (project / "Makefile").read_text()
    steps = [command for command, _ in list_steps(read_workflow(project), _contexts("stable"))]
    assert [step.removeprefix("make ") for step in steps] == [
        *("setup", "lint", "validate", "test", "sample", "compare"),
        *("setup", "push", "approve"),
    ]
    assert all(re.search(rf"^{step.removeprefix('make ')}:", makefile, re.MULTILINE) for step in steps)


def test_image_copies_files_that_exist(project: Path) -> None:
    recipe = (project / "Dockerfile").read_text()
    sources = [name for line in re.findall(r"^COPY (.+)$", recipe, re.MULTILINE) for name in line.split()[:-1]]
    assert {"config.yaml", "network.py", "data"} == set(sources)
    assert all((project / name).exists() for name in sources)


def test_tables_are_the_same_each_time_and_share_no_row(project: Path, tmp_path: Path) -> None:
    assert main(["scaffold", "project", str(tmp_path / "again")]) == 0
    tables = {}
    for name in ("sample", "holdout"):
        content = (project / "data" / f"{name}.csv").read_text()
        assert content == (tmp_path / "again" / "data" / f"{name}.csv").read_text()
        tables[name] = pd.read_csv(project / "data" / f"{name}.csv")
    assert {name: len(table) for name, table in tables.items()} == {"sample": 800, "holdout": 400}
    assert pd.merge(tables["sample"], tables["holdout"]).empty
    assert 0.2 < tables["sample"]["churned"].mean() < 0.8


@pytest.mark.parametrize(
    ("folder", "name", "message"),
    [
        ("full", None, "expected a new or empty folder, received one with content"),
        ("full/file", None, "expected a new or empty folder"),
        ("new", "Churn", "--name: expected lower-case letters, digits and -"),
        ("new", "-", "--name: expected lower-case letters"),
        ("2026", None, "received '2026'"),
        ("full/file/new", None, "cannot be written: File exists"),
    ],
)
def test_repository_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, name: str | None, message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["scaffold", "project", str(tmp_path / folder), *(["--name", name] if name else [])]) == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.rglob("*")} == {"full", "file"}


def test_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "churn").mkdir()
    assert main(["scaffold", "project", str(tmp_path / "churn"), "--name", "leavers"]) == 0
    assert "name: leavers" in (tmp_path / "churn" / "config.yaml").read_text()


def _contexts(models: str) -> dict[str, str]:
    return {
        "github.actor": "ana",
        # A name that a tag may have: the shell and make must not expand it.
        "github.ref_name": "v1$(shell touch pwned)`touch pwned`;x",
        "vars.MODELS": models,
    }


@pytest.mark.slow
def test_steps_of_the_ci_file_run_in_their_order(project: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    # A checkout of this project, as the steps `uses: actions/checkout` make it.
    (project / ".pipeline").symlink_to(ROOT)
    steps = list(list_steps(read_workflow(project), _contexts(str(models))))
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}

    def run(command: str, environment: Mapping[str, str], code: int = 0) -> str:
        ended = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=project,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    outputs = [run(command, environment) for command, environment in steps]
    assert "nothing was pushed yet" in outputs[5]
    assert "approved by ana" in outputs[-1]
    [manifest] = [json.loads(path.read_text()) for path in models.glob("*/manifest.json")]
    contexts = _contexts(str(models))
    assert (manifest["approval"]["by"], manifest["approval"]["note"]) == ("ana", f"tag {contexts['github.ref_name']}")
    assert not list(project.rglob("pwned"))

    # The next commit is compared with the model that is stable now, and a worse one is refused.
    command, environment = steps[5]
    assert re.search(rf"log loss: stable {manifest['version']} 0\.\d+, new \d+ 0\.\d+", run(command, environment))
    labels = project / "data" / "sample.csv"
    table = pd.read_csv(labels)
    table.assign(churned=1 - table["churned"]).to_csv(labels, index=False)
    run(steps[4][0], environment)
    assert "log loss" in run(command, environment, code=2)
