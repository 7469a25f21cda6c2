"""Rows that a run leaves out are counted: bad rows can be found again, and sampled rows stand for all rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import yaml
from scipy.special import expit

from tests.support.data import bad_rows, people
from tests.support.runs.command import command

pytestmark = pytest.mark.e2e


def test_bad_rows_are_set_aside_counted_and_shown(tmp_path: Path):
    lines = people.write(tmp_path / "rows.csv", people.rows(1000)).read_text(encoding="utf-8").splitlines()
    lines[7] += ";surplus"
    lines[500] = lines[500].replace(lines[500].split(";")[1], "many", 1)
    # The file extension may be wrong.
    packed = tmp_path / "people.csv"
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    section = {
        **people.CONFIG["data"],
        "types": {"hours": "int"},
        "split": {"by": "group", "columns": ["age"], "train": 2, "eval": 1},
        "bad_rows": {"max_fraction": 0.002},
    }
    config = people.write_config(tmp_path / "people.yaml", packed, data=section)
    arguments = ("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--to", "ExampleGen")

    result = command(*arguments, "--json").result
    assert result["state"] == "done"
    assert (result["rows_read"], result["rows_excluded"]) == (1000, {"quarantined": 2})
    assert sum(result["rows"].values()) == 998
    types = {"age": "float", "hours": "int", "city": "bytes", "income": "bytes", "spent": "float"}
    assert result["column_types"] == types
    first, second = bad_rows.read(result["quarantine"])
    assert (first["file"], first["row"], first["reason"]) == (str(packed), 8, "expected 5 fields, received 6")
    assert (second["row"], second["column"], second["content"]["hours"]) == (501, "hours", "many")

    shown = command(*arguments)
    assert shown.exit_code == 0
    assert "quarantined 2 (of 1,000 read)" in shown.out + shown.err
    assert f"bad rows: {result['quarantine']}" in shown.out + shown.err

    ended = command(*arguments, "--set", "data.bad_rows.max_fraction=0.001")
    assert ended.exit_code == 2
    assert f"error: {packed}, row 8: expected 5 fields, received 6" in ended.out
    assert f"  - {packed}, row 501: column hours: expected an int64, received 'many'" in ended.out


@pytest.mark.parametrize("curated", [True, False], ids=["curated schema", "inferred schema"])
def test_model_of_sampled_rows_predicts_the_probabilities_of_all_rows(tmp_path: Path, curated: bool):
    """The probabilities of the label are known, 4 % on average. A tenth of the rows without it are used."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60_000, 2))
    probability = expit(1.5 * x[:, 0] - x[:, 1] - 4)
    table = pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "y": (random.random(len(x)) < probability).astype(int)})
    table.to_csv(tmp_path / "rows.csv", index=False)
    schema = "".join(
        f'feature {{ name: "{name}" type: {kind} presence {{ min_count: 1 }} }}\n'
        for name, kind in {"x": "FLOAT", "z": "FLOAT", "y": "INT"}.items()
    )
    (tmp_path / "schema.pbtxt").write_text(schema)
    config = {
        "data": {"path": str(tmp_path / "rows.csv"), "label": "y", "sample": {"label": {0: 0.1}}},
        "schema": {"path": str(tmp_path / "schema.pbtxt") if curated else None},
        "features": {"columns": {"x": "z_score", "z": "z_score"}},
        "model": {"kind": "linear"},
        "training": {"steps": 1500, "batch_size": 256, "learning_rate": 0.05},
        "evaluation": {"thresholds": {"auc": {"min": 0.7}}},
        "serving": {"check": "none"},
    }
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(config))
    run = command("--local", "--config", str(tmp_path / "rows.yaml"), "--output", str(tmp_path / "out"), "--json")
    assert run.result["state"] == "done", run.result["error"]
    positives = int(table["y"].sum())
    used = sum(run.result["rows"].values())
    assert used == pytest.approx(positives + 0.1 * (len(table) - positives), rel=0, abs=300)
    assert used + run.result["rows_excluded"]["not kept by data.sample"] == len(table)
    # The metrics describe all rows: the constant's loss is the entropy of the label in all rows.
    share = positives / len(table)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert run.result["constant"]["binary_crossentropy"]["value"] == pytest.approx(entropy, rel=0, abs=0.01)
    assert run.result["metrics"]["calibration"] == pytest.approx(1, abs=0.15)
    raw = tf.saved_model.load(run.result["pushed"]).signatures["raw"]
    new = random.normal(size=(5000, 2)).astype(np.float32)
    predicted = raw(x=tf.constant(new[:, 0]), z=tf.constant(new[:, 1]))["probability"].numpy()[:, 0]
    expected = expit(1.5 * new[:, 0] - new[:, 1] - 4)
    assert np.abs(predicted - expected).mean() < 0.01
    assert predicted.mean() == pytest.approx(expected.mean(), rel=0, abs=0.006)
