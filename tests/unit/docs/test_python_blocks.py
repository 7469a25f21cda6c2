"""Tests that run the Python blocks of own-code, own-nodes and metadata, and check that every page has such a test."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from components.features.config import FeaturesConfig
from components.features.expression import Label
from components.features.feature_spec import Dense, Ids
from components.features.plan import FeaturePlan
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import Inputs
from components.trainer.config import TrainingConfig
from components.trainer.plan import TrainingPlan
from tests.support.data import doc_pages
from tests.support.runs.command import SECONDS
from tests.support.runs.store_writer import Writer
from tests.support.servers.forked_command import ForkedCommand

OWN_CODE = doc_pages.ROOT / "docs" / "how-to" / "own-code.md"
RUN_BY = {
    "README.md": "test_tutorial.py",
    "docs/development.md": "../test_float_comparisons.py",
    "docs/how-to/adding-a-node.md": "test_extending.py",
    "docs/how-to/edge-device.md": "../../e2e/test_edge.py",
    "docs/how-to/extending.md": "test_extending.py",
    "docs/how-to/frameworks.md": "../components/trainer/frameworks/test_page_examples.py",
    "docs/how-to/inference-protocol.md": "../../e2e/test_predictions.py",
    "docs/how-to/keras3.md": "../../e2e/test_keras3.py",
    "docs/how-to/metadata.md": "test_python_blocks.py",
    "docs/how-to/own-code.md": "test_python_blocks.py",
    "docs/how-to/own-nodes.md": "test_python_blocks.py",
    "docs/how-to/python.md": "../../e2e/test_python_interface.py",
    "docs/how-to/request-log.md": "../../e2e/test_monitor.py",
    "docs/tutorial.md": "test_tutorial.py",
}


def test_every_page_with_python_has_a_test() -> None:
    pages = {str(page.relative_to(doc_pages.ROOT)) for page in doc_pages.PAGES if doc_pages.blocks(page, "python")}
    assert pages == set(RUN_BY)
    assert all((Path(__file__).parent / test).is_file() for test in RUN_BY.values())


def test_network_of_own_code_can_be_built(tmp_path: Path) -> None:
    network, _example, _expansion = doc_pages.blocks(OWN_CODE, "python")
    file = tmp_path / "network.py"
    file.write_text(network)
    inputs = Inputs({"age": Dense(), "pixels": Dense(4), "plan": Ids(5), "words": Ids(9, values=3)})
    model = build(ModelConfig(build=str(file)), inputs, 2)
    batch = {"age": [0.5], "pixels": [[0.0] * 4], "plan": [4], "words": [[1, 8, 0]]}
    logits = model({name: tf.constant(value) for name, value in batch.items()})
    assert logits.shape == (1, 2)
    assert np.isfinite(logits).all()


def test_compact_features_are_expanded_in_own_code(tmp_path: Path) -> None:
    _network, _example, expansion = doc_pages.blocks(OWN_CODE, "python")
    (tmp_path / "expansion.py").write_text(expansion)
    features = FeaturesConfig.model_validate({"columns": {"age": {"piecewise_linear": {"bins": 3}}}})
    plan = TrainingPlan(
        features=FeaturePlan(features=features, labels=(Label("y"),), task="binary"),
        model=ModelConfig(),
        training=TrainingConfig(),
    )
    expand = runpy.run_path(str(tmp_path / "expansion.py"))["expansion"]
    arguments = SimpleNamespace(custom_config={"plan": plan.model_dump_json()})
    expanded = expand(arguments)({"age_piecewise_linear": tf.constant([[1, 0.5]])})
    assert expanded["age_piecewise_linear"].numpy().tolist() == [[1, 0.5, 0]]


@pytest.mark.extended
def test_components_of_own_nodes_agree_with_their_config(tmp_path: Path) -> None:
    page = doc_pages.ROOT / "docs" / "how-to" / "own-nodes.md"
    [components], [config] = doc_pages.blocks(page, "python"), doc_pages.blocks(page, "yaml")
    doc_pages.write_customers(tmp_path, 1)
    (tmp_path / "data/customers/1/customers.csv").rename(tmp_path / "data/customers.csv")
    (tmp_path / "mycode").mkdir()
    (tmp_path / "mycode/checks.py").write_text(components)
    (tmp_path / "customers.yaml").write_text(config)
    arguments = ["plan", "--config", "customers.yaml", "--json"]
    command = ForkedCommand(doc_pages.run_here, arguments, tmp_path, os.environ)
    code, out, err = command.wait(SECONDS)
    assert code == 0, err
    inputs = {node["id"]: node["inputs"] for node in json.loads(out)["nodes"]}
    assert (inputs["ModelSize"], inputs["check_size"]) == (["Trainer.model"], ["ModelSize.megabytes"])


@pytest.mark.e2e
@pytest.mark.slow
def test_example_of_own_code_runs(tmp_path: Path) -> None:
    _network, example, _expansion = doc_pages.blocks(OWN_CODE, "python")
    [config] = [text for text in doc_pages.blocks(OWN_CODE, "yaml") if text.startswith("# configs/own.yaml")]
    doc_pages.write_customers(tmp_path, 1)
    (tmp_path / "data/customers/1/customers.csv").rename(tmp_path / "data/customers.csv")
    (tmp_path / "mycode").mkdir()
    (tmp_path / "mycode/churn.py").write_text(example)
    (tmp_path / "own.yaml").write_text(config)
    process = subprocess.run(
        [sys.executable, str(doc_pages.ROOT / "runner.py"), "--local", "--config", "own.yaml", "--to", "Evaluator"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "the model is blessed" in process.stdout
    [rows] = re.findall(r"^rows: .+\n", process.stdout, re.MULTILINE)
    assert rows in OWN_CODE.read_text(encoding="utf-8")


def test_program_on_the_metadata_page_returns_a_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out/taxi").mkdir(parents=True)
    writer = Writer(tmp_path / "out/taxi/metadata.db", "taxi")
    writer.execution("one", "Trainer", outputs=[writer.artifact("Model", "/model")])
    [program] = doc_pages.blocks(doc_pages.ROOT / "docs" / "how-to" / "metadata.md", "python")
    (tmp_path / "page.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    assert list(runpy.run_path("page.py")["models"]["uri"]) == ["/model"]
