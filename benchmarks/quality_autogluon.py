"""Compute the losses of AutoGluon's models on a split of a table; runs in the environment `autogluon`.

python -m benchmarks.quality_autogluon TABLE FOLDER SECONDS

Read FOLDER/train.csv and FOLDER/test.csv, see benchmarks/quality_baselines.py, and write FOLDER/autogluon.json: model →
[loss, CPU-seconds]. The presets have this time each. `TabM` is the model of that name alone, with the default setting
that AutoGluon took from its publication (Gorishniy et al., TabM: Advancing tabular deep learning with
parameter-efficient ensembling, 2024).
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.quality_baselines import TABLES, compute_loss

_MODELS: dict[str, dict[str, Any]] = {
    "AutoGluon medium": {"presets": "medium_quality"},
    "AutoGluon best": {"presets": "best_quality"},
    "TabM": {"hyperparameters": {"TABM": {}}, "fit_weighted_ensemble": False},
}


def main(name: str, folder: str, seconds: str) -> None:
    """Train the models and write their losses."""
    from autogluon.tabular import TabularPredictor

    table = TABLES[name]
    regression = table.task == "regression"
    train, test = (pd.read_csv(f"{folder}/{split}.csv") for split in ("train", "test"))
    truth, rows = test[table.label], test.drop(columns=table.label)
    results = {}
    for model, options in _MODELS.items():
        started = _cpu()
        with tempfile.TemporaryDirectory() as scratch:
            metric = "rmse" if regression else "log_loss"
            predictor = TabularPredictor(table.label, table.task, metric, path=f"{scratch}/model", verbosity=0)
            predictor.fit(train, time_limit=float(seconds), num_cpus=2, num_gpus=0, **options)
            answers = predictor.predict(rows) if regression else predictor.predict_proba(rows)
        codes = truth if regression else truth.map(list(answers.columns).index)
        results[model] = (compute_loss(regression, codes.to_numpy(), answers.to_numpy()), _cpu() - started)
        Path(folder, "autogluon.json").write_text(json.dumps(results))


def _cpu() -> float:
    """Return the CPU-seconds of this process and of the children that it has waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main(*sys.argv[1:])
