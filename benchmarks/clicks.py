"""Compare models for ids with the best possible model of the simulated clicks.

python -m benchmarks.clicks [--rows 1_000_000] [--seed 0] [--kinds dcn_v2,dlrm]

All models learn from the same impressions, and predict a quarter as many further impressions of the same users, items
and sites. Our models are configs/clicks.yaml with another kind, trained for one pass over the rows in one process. The
best model knows the parameters of the simulator, and learns only the effects of the ids (clicks_best.py). The AUC of
the true probability is reported as well, but it cannot be reached from the rows, because most users have only a dozen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from sklearn.metrics import roc_auc_score

from benchmarks import measure
from components.compat.tensorflow import ENVIRONMENT
from data.clicks import SCHEMA, Impressions
from data.tables import blocks, table_file

_BATCH = 512
_SIZES: dict[str, dict[str, object]] = {
    "dcn_v2": {"embedding": 16, "cross_layers": 1},
    "dlrm": {"embedding": 12, "hidden": [64]},
}
"""Kind → fields of the model section, which were chosen on the log with seed 0."""
_HELD_BACK = 1_000
"""One row of this number is in the eval split, which a run requires but this benchmark does not use."""
_WANTED = 0.003


def main() -> None:
    """Compare, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the log")
    parser.add_argument("--kinds", default="dcn_v2,dlrm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        measured, facts = compare(Path(scratch), options.rows, options.seed, options.kinds.split(","))
    command = f"python -m benchmarks.clicks --rows {options.rows} --seed {options.seed} --kinds {options.kinds}"
    print(measure.record(f"clicks_seed{options.seed}", command, measured, facts))


def compare(
    folder: Path, rows: int, seed: int, kinds: list[str]
) -> tuple[dict[str, list[measure.Measurement]], measure.Facts]:
    """Train all sides, and return their measurements and the AUCs."""
    held_out = rows // 4
    log = Impressions(rows + held_out, seed)
    with table_file(folder / "clicks.parquet", SCHEMA) as sink:
        for start, stop in blocks(rows):
            sink.write_table(log.make_rows(start, stop))
    seen = log.make_rows(rows, rows + held_out)
    pyarrow.csv.write_csv(seen, folder / "held_out.csv")
    clicked = seen["clicked"].to_numpy()

    def auc(answers: Any) -> float:
        return round(float(roc_auc_score(clicked, answers)), 4)

    best = folder / "best.npy"
    measured = {
        "best": [_run(folder, "-m", "benchmarks.clicks_best", str(rows), str(held_out), str(best), f"--seed={seed}")]
    }
    limit = auc(np.load(best))
    true = auc(log.make_truth(rows, rows + held_out)["probability"].to_numpy())
    facts: measure.Facts = {"rows": rows, "AUC of the true probabilities": true, "best AUC": limit}
    for kind in kinds:
        measured[kind] = [_train(folder, rows, kind)]
        model_auc = auc(np.load(folder / f"{kind}.npy"))
        facts[f"{kind}: AUC"] = model_auc
        facts[f"{kind}: behind the best (wanted: at most {_WANTED})"] = round(limit - model_auc, 4)
    return measured, facts


def _train(folder: Path, rows: int, kind: str) -> measure.Measurement:
    """Run the pipeline up to the Trainer, and predict the held-out rows; later kinds reuse nodes before the Trainer."""
    fields = {
        "data.path": folder / "clicks.parquet",
        "data.split": f"{{train: {_HELD_BACK - 1}, eval: 1}}",
        # With this number of rows, too many users would share a hash bucket of the example's config.
        "features.columns.user": "{vocab: {size: 1000000}}",
        "features.columns.item": "{vocab: {size: 1000000}}",
        "features.columns.site": "{vocab: {size: 1000000}}",
        "model.kind": kind,
        **{f"model.{name}": value for name, value in _SIZES.get(kind, {}).items()},
        "training.strategy": "{kind: none}",
        "training.steps": max(1, rows * (_HELD_BACK - 1) // _HELD_BACK // _BATCH),
        "training.batch_size": _BATCH,
        "training.learning_rate": 0.003,
    }
    chosen = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    options = ["--config", "configs/clicks.yaml", "--output", str(folder / "out"), *chosen]
    measurement = _run(folder, "runner.py", "--local", *options, "--to", "Trainer")
    models = folder.glob("out/clicks/artifacts/Trainer/model/*/Format-Serving")
    model = max(models, key=lambda path: int(path.parent.name))
    files = (model, folder / "held_out.csv", folder / f"{kind}.npy")
    _run(folder, "-m", "benchmarks.clicks_program", *map(str, files))
    return measurement


def _run(folder: Path, *arguments: str) -> measure.Measurement:
    environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    return measure.run(["env", *environment, sys.executable, *arguments], folder / "log")


if __name__ == "__main__":
    main()
