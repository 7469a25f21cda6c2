"""Compare models of several labels with one model per label on the simulated sessions.

python -m benchmarks.labels [--rows 102400] [--seeds 5] [--sides esmm,mmoe,din,click,purchase,after_click] [--click -3]

Each seed is a log with different users and items. The latest fifth of its rows is the eval split. `esmm`, `mmoe` and
`din` learn click and purchase together. `click`, `purchase` and `after_click` are din with one label. `after_click` is
trained only on the clicked rows; `separate` multiplies its probability by the probability of `click` to predict a
purchase. The best model is the true probability, which cannot be learned from the rows. --click sets the log-odds of a
click, such as -3 for rare clicks and even rarer purchases.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from benchmarks import measure
from benchmarks.sessions import with_error
from components.data.examples import to_lists
from components.predictor import model_interface
from data import sessions
from data.clicks import best_auc, truth_path

Floats: TypeAlias = npt.NDArray[np.floating]

_PASSES, _BATCH = 3, 512
_SINGLE = {"click": "clicked", "purchase": "purchased", "after_click": "purchased"}
"""Model with one label → label."""


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=102_400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sides", default=f"esmm,mmoe,din,{','.join(_SINGLE)}")
    parser.add_argument("--click", type=float, default=sessions.CLICK)
    parser.add_argument("--set", action="append", default=[], help="setting of the config for all models")
    options = parser.parse_args()
    sides = options.sides.split(",")
    measured: dict[str, list[measure.Measurement]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as scratch:
        results = [
            areas(Log(Path(scratch) / str(seed), options.rows, seed, options.click), measured, options.set)
            for seed in range(options.seeds)
        ]
    command = f"python -m benchmarks.labels --rows {options.rows} --seeds {options.seeds} --sides {options.sides}"
    name = "labels"
    if options.click != sessions.CLICK:
        command, name = f"{command} --click {options.click:g}", f"labels_click{options.click:g}"
    print(measure.record(name, command, measured, facts(results, options.rows)))


class Log(NamedTuple):
    """A simulated log.

    Attributes:
      folder: Folder for the log and the outputs of the models.
      rows: Number of rows.
      seed: Seed of the log.
      click: Log-odds of a click without any effect.
    """

    folder: Path
    rows: int
    seed: int
    click: float


def areas(log: Log, measured: dict[str, list[measure.Measurement]], fields: list[str]) -> dict[str, dict[str, float]]:
    """Train all models on a log, and return target → model → AUC in the eval split.

    Args:
      log: The log.
      measured: Model → measurements of its runs. A measurement is appended for each model.
      fields: Settings of the config for all models.
    """
    folder, source = log.folder, log.folder / "sessions.parquet"
    sessions.make(log.rows, log.seed, source, log.click)
    table, truth = parquet.read_table(source), parquet.read_table(truth_path(source))
    times = table["time"].to_numpy()
    later = times >= np.sort(times)[int(0.8 * len(times))]
    rows_of = {"all": table.filter(~later), "clicked": table.filter(~later & (table["clicked"].to_numpy() == 1))}
    for name, trained in rows_of.items():
        (folder / name).mkdir()
        parquet.write_table(trained, folder / name / "train.parquet")
        parquet.write_table(table.filter(later), folder / name / "eval.parquet")
    evaluated = table.filter(later)
    scores = {"best": dict(zip(("click", "after_click"), (column.to_numpy()[later] for column in truth), strict=True))}
    for side, runs in measured.items():
        runs.append(measure.run(_make_command(folder, side, fields), folder / f"{side}.log"))
        scores[side] = _predict(folder / side, evaluated)
    return areas_of(scores, evaluated)


def areas_of(scores: dict[str, dict[str, Floats]], evaluated: pa.Table) -> dict[str, dict[str, float]]:
    """Return target → model → AUC; see `areas`.

    Args:
      scores: Model → predictions of click, purchase and after_click. A model with one label predicts only this label.
      evaluated: Rows of the eval split.
    """
    clicked, purchased = (evaluated[name].to_numpy() for name in ("clicked", "purchased"))
    aucs: dict[str, dict[str, float]] = {"click": {}, "purchase": {}, "purchase of the clicked": {}}
    sides = {side: predictions for side, predictions in scores.items() if side not in ("click", "after_click")}
    if "click" in scores and "after_click" in scores:
        sides["separate"] = {"click": scores["click"]["click"], "after_click": scores["after_click"]["purchase"]}
    for side, predictions in sides.items():
        if "purchase" not in predictions and "after_click" in predictions:
            predictions = {**predictions, "purchase": predictions["click"] * predictions["after_click"]}
        if "click" in predictions:
            aucs["click"][side] = best_auc(predictions["click"], clicked)
        if "purchase" in predictions:
            aucs["purchase"][side] = best_auc(predictions["purchase"], purchased)
        if "after_click" in predictions:
            of_clicked = clicked == 1
            aucs["purchase of the clicked"][side] = best_auc(
                predictions["after_click"][of_clicked], purchased[of_clicked]
            )
    return aucs


def _predict(folder: Path, rows: pa.Table) -> dict[str, Floats]:
    """Return the predictions of a model for click, purchase and after_click, as far as it predicts them."""
    [model] = folder.glob("sessions/artifacts/Trainer/model/*/Format-Serving")
    reads = model_interface.read(str(model))
    answers = [reads.predict(to_lists(batch)) for batch in rows.combine_chunks().to_batches(max_chunksize=4096)]
    predictions = {name: np.concatenate([answer[name][:, 0] for answer in answers]) for name in answers[0]}
    if "probability" in predictions:
        return {"click" if folder.name == "click" else "purchase": predictions["probability"]}
    purchase, click = predictions["probability_purchase"], predictions["probability_click"]
    return {"click": click, "purchase": purchase, "after_click": purchase / click}


def facts(found: list[dict[str, dict[str, float]]], rows: int) -> measure.Facts:
    """Return means over the seeds, and differences between models, with standard errors."""
    reported: measure.Facts = {"rows": rows, "seeds": len(found)}
    for target in found[0]:
        sides = list(found[0][target])
        for side in sides:
            reported[f"{target}: AUC of {side}"] = with_error([result[target][side] for result in found])
        for side, baseline in itertools.product(sides, sides):
            if side in ("esmm", "mmoe") and baseline in ("separate", "purchase", "best"):
                difference = [result[target][side] - result[target][baseline] for result in found]
                reported[f"{target}: {side} above {baseline}"] = with_error(difference)
    return reported


def _make_command(folder: Path, side: str, settings: list[str]) -> list[str]:
    """Return the command that trains and evaluates a model in a separate folder."""
    data = folder / ("clicked" if side == "after_click" else "all")
    rows = parquet.read_metadata(data / "train.parquet").num_rows
    fields = {
        "data.path": data,
        "data.split": "{by: files, train: train.parquet, eval: eval.parquet}",
        "training.steps": max(1, round(_PASSES * rows / _BATCH)),
        "evaluation.slices": "[]",
        "evaluation.importance_rows": 0,
        "evaluation.thresholds": "{auc: {min: 0}}",
        # after_click is trained on clicked rows only, so it can be worse than a constant on the eval split.
        "evaluation.constant": "warn",
    }
    if side in _SINGLE:
        fields |= {"data.labels": "{}", "data.label": _SINGLE[side]}
    chosen = [*(f"{name}={value}" for name, value in fields.items()), *settings]
    chosen.append(f"model.kind={'din' if side in _SINGLE else side}")
    sets = [word for field in chosen for word in ("--set", field)]
    arguments = ["--local", "--json", "--config", "configs/sessions.yaml", "--output", str(folder / side), *sets]
    return [sys.executable, "runner.py", *arguments, "--to", "Evaluator"]


if __name__ == "__main__":
    main()
