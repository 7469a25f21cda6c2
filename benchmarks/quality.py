"""How good the models are that `init` and nothing else makes, beside scikit-learn's gradient-boosted trees.

python -m benchmarks.quality [--tables taxi,wine,...] [--seeds 5]

For each seed the rows of a table are split 2:1 by chance, with the same share of each class on both sides. Both see the
same two thirds and predict the same third. Ours: `runner.py init` on a CSV file of them, `runner.py` up to the
Trainer, and the exported model's answers; it has to part its two thirds into training and evaluation itself. Theirs:
HistGradientBoosting with its defaults, text as native categories. Scores: area under the ROC curve, accuracy, R².
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from benchmarks import measure
from benchmarks.quality_tables import TABLES, Sample

_SCORES = {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}


def main() -> None:
    """Compares, prints the table and writes it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    facts: measure.Facts = {}
    measured: dict[str, list[measure.Measurement]] = {}
    for name in options.tables.split(","):
        sample = TABLES[name]()
        found = list(_compared(name, sample, options.seeds))
        ours, theirs, measured[name] = (list(column) for column in zip(*found, strict=True))
        facts[f"{name}: {_SCORES[sample.task]}, ours"] = round(float(np.mean(ours)), 4)
        facts[f"{name}: {_SCORES[sample.task]}, trees"] = round(float(np.mean(theirs)), 4)
        facts[f"{name}: ours - trees"] = measure.Spread.of(np.subtract(ours, theirs))
        print(*(f"{key}: {value}" for key, value in facts.items() if key.startswith(name)), sep="\n", flush=True)
    command = f"python -m benchmarks.quality --tables {options.tables} --seeds {options.seeds}"
    print(measure.record("quality", command, measured, facts))


def _compared(name: str, sample: Sample, seeds: int) -> Iterator[tuple[float, float, measure.Measurement]]:
    """For each seed our score, theirs, and what our run took."""
    truth, seen = sample.truth(), sample.features()
    for seed in range(seeds):
        by = None if sample.task == "regression" else truth
        known, held_out = train_test_split(np.arange(len(truth)), test_size=1 / 3, random_state=seed, stratify=by)
        ours, taken = _ours(name, sample, known, held_out, seed)
        theirs = _trees(sample, seen, known, held_out)
        yield _score(sample, truth[held_out], ours), _score(sample, truth[held_out], theirs), taken


def _ours(name: str, sample: Sample, known: Any, held_out: Any, seed: int) -> tuple[Any, measure.Measurement]:
    """The answers of the model that `init` leads to: probabilities, or numbers."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sample.rows.iloc[known].to_csv(folder / f"{name}.csv", index=False)
        sample.rows.iloc[held_out].to_csv(folder / "held_out.csv", index=False)
        config, answers = str(folder / "config.yaml"), folder / "answers.npy"
        arguments = ["--data", str(folder / f"{name}.csv"), "--label", sample.label]
        # Classes that are numbers might be quantities, which only the user knows.
        arguments += ["--task", sample.task] if sample.label == "label" else []
        written = ["--output", config, "--schema", str(folder / "schema.pbtxt")]
        _run(folder, "runner.py", "init", *arguments, *written)
        kept = ["--output", str(folder / "out"), "--set", f"training.seed={seed}"]
        taken = _run(folder, "runner.py", "--local", "--config", config, *kept, "--to", "Trainer")
        (model,) = folder.glob("out/*/artifacts/Trainer/model/*/Format-Serving")
        _run(folder, "-m", "benchmarks.quality_program", str(model), str(folder / "held_out.csv"), str(answers))
        return np.load(answers), taken


def _run(folder: Path, *arguments: str) -> measure.Measurement:
    return measure.run([sys.executable, *arguments], folder / "log")


def _trees(sample: Sample, seen: Any, known: Any, held_out: Any) -> Any:
    kind = HistGradientBoostingRegressor if sample.task == "regression" else HistGradientBoostingClassifier
    model = kind(categorical_features="from_dtype").fit(seen.iloc[known], sample.truth()[known])
    if sample.task == "regression":
        return model.predict(seen.iloc[held_out])
    answers = model.predict_proba(seen.iloc[held_out])
    return answers[:, 1] if sample.task == "binary" else answers


def _score(sample: Sample, truth: Any, answers: Any) -> float:
    if sample.task == "binary":
        return float(roc_auc_score(truth, answers))
    if sample.task == "multiclass":
        return float(accuracy_score(truth, answers.argmax(axis=1)))
    return float(r2_score(truth, answers))


if __name__ == "__main__":
    main()
