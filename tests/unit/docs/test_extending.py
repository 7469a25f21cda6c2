"""Tests that a pipeline with the code of extending.md and adding-a-node.md runs, in a copy of the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.data import doc_pages

PAGES = [doc_pages.ROOT / "docs" / "how-to" / name for name in ("extending.md", "adding-a-node.md")]
CONFIG = {
    "data": {"path": "customers.csv", "label": "churned"},
    "features": {"columns": {"age": "z_score", "minutes": "sqrt", "plan": "vocab"}},
    "model": {"kind": "resnet", "hidden": [32, 32]},
    "training": {"steps": 200},
    "evaluation": {"thresholds": {"balanced_accuracy": {"min": 0.6}, "kolmogorov_smirnov": {"min": 0.1}}},
    "serving": {"check": "none"},
    "size": {"max_mb": 50},
}


def apply(difference: str, project: Path) -> None:
    """Apply a diff without line numbers. The lines of a hunk must occur in the file exactly once."""
    header, _, body = difference.partition("\n")
    file = project / header.removeprefix("--- ")
    text = file.read_text(encoding="utf-8")
    for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE):
        lines = hunk.splitlines()
        before = "\n".join(line[1:] for line in lines if line[:1] != "+")
        after = "\n".join(line[1:] for line in lines if line[:1] != "-")
        assert text.count(f"\n{before}") == 1, f"{file}: expected once:\n{before}"
        text = text.replace(f"\n{before}", f"\n{after}")
    file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a copy of the project with all additions of the pages, and with a table and a config that use them."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("components", "pipeline"):
        shutil.copytree(doc_pages.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(doc_pages.ROOT / "runner.py", folder)
    for text in (block for page in PAGES for block in doc_pages.blocks(page, "python")):
        name, _, content = text.partition("\n")
        file = folder / name.removeprefix("# ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    for text in (block for page in PAGES for block in doc_pages.blocks(page, "diff")):
        apply(text, folder)
    doc_pages.write_customers(folder, 1)
    shutil.move(folder / "data" / "customers" / "1" / "customers.csv", folder)
    (folder / "customers.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


def runner(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "runner.py", *arguments, "--config", "customers.yaml"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def test_config_accepts_the_added_names(project: Path) -> None:
    assert runner(project, "validate").returncode == 0
    wrong = runner(project, "validate", "--set", "features.columns.age=sqr", "--set", "model.kind=resnets")
    assert "did you mean 'sqrt'?" in wrong.stderr
    assert "'resnet'" in wrong.stderr


@pytest.mark.e2e
@pytest.mark.slow
def test_added_operation_model_metrics_and_node_run(project: Path) -> None:
    process = runner(project, "--local")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "SizeGate: done" in process.stdout
    assert re.search(r"^slice .*\bbalanced_accuracy\b.*\bkolmogorov_smirnov\b", process.stdout, re.MULTILINE)
    refused = runner(project, "--local", "--to", "SizeGate", "--set", "size.max_mb=0.1")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "size.max_mb: expected a model of at most 0.1 MB, received" in refused.stdout
