"""Tests that the examples of the page on Keras 3 run: a public table to a pushed model, and a run_fn with `fit`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from tests.support.data import doc_pages
from tests.support.runs.command import SECONDS
from tests.support.servers.forked_command import ForkedCommand

PAGE = doc_pages.ROOT / "docs" / "how-to" / "keras3.md"


def run(folder: Path, config: str, module: str, code: str) -> str:
    """Run a config of the page with a user's module; return the output."""
    (folder / "mycode").mkdir()
    (folder / "mycode" / f"{module}.py").write_text(code)
    (folder / f"{module}.yaml").write_text(config)
    arguments = ["--local", "--config", f"{module}.yaml"]
    code_of_exit, out, err = ForkedCommand(doc_pages.run_here, arguments, folder, os.environ).wait(SECONDS)
    assert code_of_exit == 0, out + err
    assert "the model is blessed" in out
    assert re.search(r"^serving check passed: \d+ responses match", out, re.MULTILINE)
    return out


def load_pushed(out: str) -> Any:
    """Load the model that a run has pushed."""
    [folder] = re.findall(r"^model pushed to (.+)$", out, re.MULTILINE)
    return tf.saved_model.load(folder)


def test_network_of_a_public_table_is_pushed(tmp_path: Path) -> None:
    program, network, _fit = doc_pages.blocks(PAGE, "python")
    config, _fit_config = doc_pages.blocks(PAGE, "yaml")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    out = run(tmp_path, config, "tumours", network)
    [rows] = re.findall(r"^rows: .+\n", out, re.MULTILINE)
    assert rows in PAGE.read_text(encoding="utf-8")
    model, table = load_pushed(out), pd.read_csv(tmp_path / "data" / "tumours.csv")
    specs = model.signatures["raw"].structured_input_signature[1]
    columns = {name: tf.constant(table[name], spec.dtype) for name, spec in specs.items()}
    probability = model.signatures["raw"](**columns)["probability"].numpy().ravel()
    assert roc_auc_score(table["benign"], probability) > 0.97
    assert np.isfinite(probability).all()


@pytest.mark.slow
def test_run_fn_trains_by_fit(tmp_path: Path) -> None:
    *_others, code = doc_pages.blocks(PAGE, "python")
    *_configs, config = doc_pages.blocks(PAGE, "yaml")
    doc_pages.write_customers(tmp_path, 1)
    run(tmp_path, config, "churn", code)
