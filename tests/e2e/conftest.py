"""The first runs that end-to-end tests read; the first test that needs a run creates it for all processes.

A test may read them from any process. Tests that make further runs into the same folder share an xdist group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.data import people
from tests.support.runs.command import OWN_CODE, ROOT, SUPPORT, Runs, first_run, make_data
from tests.support.shared import make_once


def _own_evaluation(label_key: str, metric: str = "auc", least: float = 0.7) -> dict[str, Any]:
    """Return the `evaluation` section for a model with a user-defined run_fn."""
    thresholds = {metric: {"min": least}}
    preprocessing = ["transform_features"]
    return {"label_key": label_key, "preprocessing": preprocessing, "metrics": [metric], "thresholds": thresholds}


def own_nodes(word: str = "found", least: float = 1) -> list[dict[str, Any]]:
    """Return two user-defined nodes: the second reads the first one's output, and precedes the push."""
    measure = {"component": "tests.support.data.own_components.Measure", "parameters": {"word": word}}
    check = {"component": "tests.support.data.own_components.check_size", "parameters": {"least": least}}
    return [
        {**measure, "inputs": {"statistics": "StatisticsGen.statistics"}},
        {**check, "inputs": {"size": "Measure.size", "text": "Measure.text"}, "before": "Pusher"},
    ]


def _taxi(folder: Path) -> Runs:
    """Run the shipped example like `make run`."""
    make_data("taxi")
    return first_run(folder, "taxi", process=True)


def _clicks(folder: Path) -> Runs:
    """Run the clicks example on few rows, for fewer steps and without slices."""
    make_data("clicks", "--rows", "12000", "--output", str(folder / "clicks.csv"))
    fields = (f"data.path={folder / 'clicks.csv'}", "training.steps=20", "evaluation.slices=[]")
    sets = [word for field in (*fields, "evaluation.metrics=[auc]") for word in ("--set", field)]
    return first_run(folder, "clicks", "--config", "configs/clicks.yaml", *sets)


def _digits(folder: Path) -> Runs:
    """Run the digits example."""
    make_data("digits")
    return first_run(folder, "digits", "--config", "configs/digits.yaml")


def _small(folder: Path) -> Runs:
    """Run 500 synthetic rows separated by semicolons, with missing values and text labels, without a curated schema."""
    return first_run(folder, "people", "--config", str(people.project(folder)))


def _own(folder: Path) -> Runs:
    """Run the same rows up to Transform, with a user-defined preprocessing_fn and run_fn."""
    config = people.project(
        folder,
        "own",
        features={"preprocessing_fn": "own_code.preprocessing_fn"},
        model={"run_fn": "own_code.run_fn"},
        evaluation=_own_evaluation("rich"),
    )
    return first_run(folder, "own", "--config", str(config), only=("--to", "Transform"), environment=OWN_CODE)


def _files(folder: Path) -> Runs:
    """Run the same rows with a module file for stock TFX that is outside any package, named by its path."""
    module = str((SUPPORT / "data" / "stock_people.py").relative_to(ROOT))
    config = people.project(
        folder,
        "files",
        features={"preprocessing_fn": module},
        model={"run_fn": f"{module}:run_fn"},
        training={"steps": 60},
        evaluation=_own_evaluation("income_xf"),
    )
    return first_run(folder, "files", "--config", str(config))


def _built(folder: Path) -> Runs:
    """Run the same rows with a user-defined network, and predict other rows after the push."""
    config = people.project(
        folder,
        "built",
        features={"columns": {"age": "z_score", "hours": "z_score", "city": "vocab"}},
        model={"build": str(SUPPORT / "data" / "own_code.py")},
        predict={"path": str(people.write_new(folder / "new.csv")), "columns": ["id"], "format": "tfrecord"},
    )
    return first_run(folder, "built", "--config", str(config))


def _stock_taxi(folder: Path) -> Runs:
    """Run TFX's taxi example: its unchanged module, by import path, for fewer steps."""
    make_data("taxi")
    # After 100 steps some of its models do not beat a constant.
    steps = ("--set", "training.steps=300", "--set", "training.eval_steps=5")
    return first_run(folder, "stock_taxi", "--config", "configs/stock_taxi.yaml", *steps)


def _stock_penguin(folder: Path) -> Runs:
    """Run TFX's penguin example in the same way."""
    make_data("penguins")
    return first_run(folder, "stock_penguin", "--config", "configs/stock_penguin.yaml")


def _tuned(folder: Path) -> Runs:
    """Run the same rows with three short trials before the training."""
    config = people.project(
        folder,
        "tuned",
        training={**people.CONFIG["training"], "learning_rate": 1e-9},
        tune={"learning_rate": {"choice": [1e-9, 0.02]}, "hidden": {"choice": [[8]]}, "trials": 3, "steps": 50},
    )
    return first_run(folder, "tuned", "--config", str(config))


def _few(folder: Path) -> Runs:
    """Run the same rows for the orchestrators: two workers, a baseline, a serving check, user-defined nodes."""
    config = people.project(
        folder,
        "few",
        training={**people.CONFIG["training"], "strategy": {"kind": "multi_worker", "workers": 2}},
        evaluation={**people.CONFIG["evaluation"], "thresholds": {"auc": {"min": 0.7, "worse_by": 0.1}}},
        serving={"check": "server"},
        nodes=own_nodes(),
    )
    return first_run(folder, "few", "--config", str(config))


def _weighted(folder: Path) -> Runs:
    """Predict people's spending, with quantiles; a third of the labels are wrong and have the weight 0."""
    wrong = np.random.default_rng(5).random(600) < 1 / 3
    table = [
        {**row, "spent": row["spent"] + 50 * bad, "weight": 0.0 if bad else 1.5 + at % 2}
        for at, (row, bad) in enumerate(zip(people.rows(600), wrong.tolist(), strict=True))
    ]
    config = people.write_config(
        folder / "weighted.yaml",
        people.write(folder / "people.csv", table),
        data={**people.CONFIG["data"], "label": "spent", "task": "regression", "weight": "weight"},
        features={"columns": {"hours": "z_score"}},
        model={"kind": "mlp", "hidden": [16], "loss": "quantile"},
        training={**people.CONFIG["training"], "steps": 400, "early_stopping": 20, "checkpoint": {"every_steps": 50}},
        evaluation={"thresholds": {"interval_coverage": {"min": 0.5, "max": 0.99}}, "slices": ["city"]},
    )
    return first_run(folder, "weighted", "--config", str(config))


def _misfits(folder: Path) -> Runs:
    """Run rows that violate their curated schema, with an uninformative column as label."""
    table = [{**row, "vip": "" if at < 30 else 1} for at, row in enumerate(people.rows(300))]
    for row in table[100:130]:
        row["city"], row["hours"] = "Atlantis", 500
    data = people.write(folder / "people.csv", table)
    vip = 'feature { name: "vip" type: INT value_count { max: 1 } presence { min_count: 1 } }'
    (folder / "people.pbtxt").write_text(people.SCHEMA + vip)
    config = people.write_config(
        folder / "people.yaml",
        data,
        schema={"path": str(folder / "people.pbtxt")},
        data={**people.CONFIG["data"], "label": "vip"},
    )
    return first_run(folder, "people", "--config", str(config))


def _fixture(make: Callable[[Path], Runs]) -> Any:
    @pytest.fixture(scope="session", name=make.__name__.removeprefix("_"))
    def first(tmp_path_factory: pytest.TempPathFactory) -> Runs:
        return make_once(tmp_path_factory, make.__name__.removeprefix("_"), make)

    first.__doc__ = make.__doc__
    return first


taxi, small, own, files, few = map(_fixture, (_taxi, _small, _own, _files, _few))
stock_taxi, stock_penguin = map(_fixture, (_stock_taxi, _stock_penguin))
built, tuned, misfits, clicks, digits = map(_fixture, (_built, _tuned, _misfits, _clicks, _digits))
weighted = _fixture(_weighted)


@pytest.fixture(scope="session", params=["few", "taxi"])
def example(request: pytest.FixtureRequest) -> Runs:
    """Run an orchestrator's pipeline on this machine: few rows, or the shipped example."""
    runs: Runs = request.getfixturevalue(request.param)
    assert runs.first.exit_code == 0, runs.first.out or runs.first.err
    return runs
