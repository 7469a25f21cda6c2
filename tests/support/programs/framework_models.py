"""Train small models with the real libraries, and write what they store and predict to tests/support/data/frameworks.

    .cache/autogluon/bin/python tests/support/programs/framework_models.py

It needs LightGBM, XGBoost, PyTorch and onnx, and nothing of the project. A file contains the numbers that the model
read, [rows, columns] of `tests/support/data/framework_rows.py`, and the predictions of the library for these rows.
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import torch
import xgboost

OUT = Path(__file__).parents[1] / "data" / "frameworks"
TRAINED, STORED = 1500, 60
TASKS = ("binary", "multiclass", "regression")


def make_numbers(count: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Return numbers [count, 10] with the columns of framework_rows.FEATURES, and the label of each task."""
    random = np.random.default_rng(seed)
    age, city = random.normal(size=count), random.integers(0, 12, count)
    bins, words = random.uniform(0, 1, (count, 3)), random.uniform(size=(count, 5)) < 0.4
    score = age + np.isin(city, (2, 3, 7)) - 2 * bins[:, 1] + words[:, 3] + 0.3 * random.normal(size=count)
    numbers = np.column_stack([age, city, bins, words]).astype(np.float32)
    labels = {
        "binary": (score > 0).astype(int),
        "multiclass": np.digitize(score, [-0.7, 0.6]),
        "regression": np.maximum(200 + 20 * score, 1.0),
    }
    return numbers, labels


def train_lightgbm(task: str, numbers: Any, label: Any, **options: Any) -> Any:
    objective = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}[task]
    classes = {"num_class": 3} if task == "multiclass" else {}
    parameters = {
        "objective": objective,
        "num_leaves": 8,
        "verbose": -1,
        "num_threads": 1,
        "seed": 1,
        **classes,
        **options,
    }
    data = lightgbm.Dataset(numbers, label, categorical_feature=[1], params={"min_data_per_group": 10, "cat_smooth": 1})
    return lightgbm.train(parameters, data, 6)


def train_xgboost(task: str, numbers: Any, label: Any, **options: Any) -> Any:
    objective = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}[task]
    classes = {"num_class": 3} if task == "multiclass" else {}
    parameters = {"objective": objective, "max_depth": 3, "nthread": 1, "seed": 1, **classes, **options}
    return xgboost.train(parameters, xgboost.DMatrix(numbers, label), 6)


class Network(torch.nn.Module):
    """A network of numbers with most layers of tabular models."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(
            *(torch.nn.Linear(10, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.1)),
            *(torch.nn.Linear(16, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.SiLU(), torch.nn.LeakyReLU()),
        )
        self.last = torch.nn.Linear(18, outputs)

    def forward(self, numbers: Any) -> Any:
        return self.last(torch.cat([self.first(numbers), torch.nn.functional.elu(numbers)], dim=1))


class WithEmbedding(torch.nn.Module):
    """A network of a number and an ID, as two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = torch.nn.Embedding(12, 4), torch.nn.Linear(5, 1)

    def forward(self, age: Any, city: Any) -> Any:
        joined = torch.cat([age.unsqueeze(1), torch.tanh(self.table(city))], dim=1)
        return self.last(joined).squeeze(1)


def train_network(network: Any, inputs: tuple[Any, ...], label: Any, loss: Any) -> Any:
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss(network(*inputs), label).backward()
        optimizer.step()
    return network.eval()


def export(network: Any, inputs: tuple[Any, ...], names: list[str]) -> str:
    file = io.BytesIO()
    axes = {name: {0: "rows"} for name in (*names, "logits")}
    torch.onnx.export(
        network, inputs, file, input_names=names, output_names=["logits"], dynamic_axes=axes, dynamo=False
    )
    return base64.b64encode(file.getvalue()).decode()


def main() -> None:
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    numbers, labels = make_numbers(TRAINED, 0)
    stored, _ = make_numbers(STORED, 1)

    def write(name: str, model: Any, predictions: Any) -> None:
        content = {"model": model, "numbers": stored.tolist(), "predictions": np.asarray(predictions).tolist()}
        (OUT / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")

    lightgbm_options: dict[str, tuple[str, dict[str, Any]]] = {
        **{task: (task, {}) for task in TASKS},
        "sigmoid": ("binary", {"sigmoid": 2.0}),
        "poisson": ("regression", {"objective": "poisson"}),
        "average": ("binary", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}),
    }
    for name, (task, options) in lightgbm_options.items():
        booster = train_lightgbm(task, numbers, labels[task], **options)
        write(f"lightgbm_{name}", booster.dump_model(), booster.predict(stored))
    xgboost_options: dict[str, tuple[str, dict[str, Any]]] = {
        **{task: (task, {}) for task in TASKS},
        "poisson": ("regression", {"objective": "count:poisson"}),
        "parallel": ("multiclass", {"num_parallel_tree": 2, "subsample": 0.7}),
    }
    for name, (task, options) in xgboost_options.items():
        booster = train_xgboost(task, numbers, labels[task], **options)
        model = json.loads(bytes(booster.save_raw("json")))
        write(f"xgboost_{name}", model, booster.predict(xgboost.DMatrix(stored)))
    rows, tensors = torch.tensor(numbers), {task: torch.tensor(label) for task, label in labels.items()}
    network = train_network(Network(3), (rows,), tensors["multiclass"], torch.nn.CrossEntropyLoss())
    expected = torch.softmax(network(torch.tensor(stored)), 1).detach()
    write("onnx_multiclass", export(network, (rows[:2],), ["numbers"]), expected)
    inputs = rows[:, 0], rows[:, 1].long()
    loss = torch.nn.BCEWithLogitsLoss()
    network = train_network(WithEmbedding(), inputs, tensors["binary"].float(), loss)
    expected = torch.sigmoid(network(torch.tensor(stored)[:, 0], torch.tensor(stored)[:, 1].long())).detach()
    names = ["age_z_score", "city_vocab"]
    write("onnx_binary", export(network, tuple(part[:2] for part in inputs), names), expected)


if __name__ == "__main__":
    main()
