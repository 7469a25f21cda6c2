"""Functions for `model.train`. The first four write what their library predicts for the rows held out to a file."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np

_ENVIRONMENTS = Path(__file__).parents[3] / ".cache"


def forest(data: Any, file: Path) -> Any:
    """Train a random forest of scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(20, max_depth=8, random_state=data.seed)
    model.fit(data.numbers(data.train), data.train[data.label].to_numpy())
    _write(file, data, model.predict_proba(data.numbers(data.validation))[:, 1])
    return model


def booster(data: Any, file: Path) -> Any:
    """Train LightGBM, which stops early, with IDs as categories."""
    _add_environment("quality")
    import lightgbm

    rows, held_out = (
        lightgbm.Dataset(data.numbers(table), table[data.label].to_numpy(), categorical_feature=list(data.id_columns))
        for table in (data.train, data.validation)
    )
    parameters = {"objective": "binary", "learning_rate": 0.1, "seed": data.seed, "verbose": -1}
    stop = lightgbm.early_stopping(10, verbose=False)
    model = lightgbm.train(parameters, rows, 300, valid_sets=[held_out], callbacks=[stop])
    assert 0 < model.best_iteration < 300
    _write(file, data, model.predict(data.numbers(data.validation)))
    return model


def trees(data: Any, file: Path) -> Any:
    """Train XGBoost by its interface of scikit-learn, which stops early."""
    _add_environment("autogluon")
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=300, early_stopping_rounds=10, random_state=data.seed)
    tables = [(data.numbers(table), table[data.label].to_numpy()) for table in (data.train, data.validation)]
    model.fit(*tables[0], eval_set=tables[1:], verbose=False)
    assert 0 < model.best_iteration < 290
    _write(file, data, model.predict_proba(tables[1][0])[:, 1])
    return model


def network(data: Any, file: Path) -> Any:
    """Train a network of PyTorch, and export it in the ONNX format."""
    _add_environment("autogluon")
    import torch

    from components.trainer.frameworks.predictor import OnnxModel

    torch.manual_seed(data.seed)
    inputs = torch.from_numpy(data.numbers(data.train).to_numpy())
    label = torch.from_numpy(data.train[data.label].to_numpy()).float()
    model = torch.nn.Sequential(
        torch.nn.BatchNorm1d(inputs.shape[1]),
        torch.nn.Linear(inputs.shape[1], 16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 1),
        torch.nn.Flatten(0),
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(inputs), label).backward()
        optimizer.step()
    model.eval()
    content = io.BytesIO()
    torch.onnx.export(model, (inputs[:2],), content, input_names=["x"], dynamic_axes={"x": {0: "n"}}, dynamo=False)

    def predict(table: Any) -> Any:
        with torch.no_grad():
            return model(torch.from_numpy(data.numbers(table).to_numpy())).numpy()

    _write(file, data, 1 / (1 + np.exp(-predict(data.validation))))
    return OnnxModel(content.getvalue(), predict, "logits")


def without_package(_data: Any) -> Any:
    """Import a package that is not installed."""
    import no_such_library  # type: ignore[import-not-found]

    return no_such_library


def _write(file: Path, data: Any, predictions: Any) -> None:
    """Write the rows held out, [rows, columns], and the predictions for them."""
    numbers = data.numbers(data.validation)
    np.savez(file, columns=list(numbers), numbers=numbers.to_numpy(), predictions=predictions)


def _add_environment(name: str) -> None:
    """Find the packages of another environment after those of this one."""
    sys.path += map(str, (_ENVIRONMENTS / name).glob("lib/python3*/site-packages"))
