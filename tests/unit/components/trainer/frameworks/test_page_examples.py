"""The functions of docs/how-to/frameworks.md train models that predict the same after their conversion."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from components.features.feature_spec import Dense, Ids
from components.models.inputs import Inputs
from components.trainer.frameworks.conversion import convert
from components.trainer.frameworks.predictor import TensorFlowModel
from components.trainer.frameworks.training_data import TrainingData, describe_inputs, name_columns, to_array, to_table
from components.trainer.memory_rows import Rows
from components.trainer.prediction_head import BinaryHead
from tests.support.data import doc_pages
from tests.support.data.tolerances import Tolerance

PAGE = doc_pages.ROOT / "docs" / "how-to" / "frameworks.md"
FEATURES = Inputs({"minutes_z_score": Dense(), "age_bins": Dense(width=2), "plan_vocab": Ids(cardinality=4)})
NUMBER, ENVIRONMENT = 600, {"lightgbm": "quality", "torch": "autogluon"}


def make_table(seed: int) -> pa.Table:
    """Return customers who leave if they have the plan 3, or phone much."""
    random = np.random.default_rng(seed)
    minutes, plan = random.normal(size=NUMBER).astype(np.float32), random.integers(0, 4, NUMBER)
    churned = (minutes + 2 * (plan == 3) + 0.5 * random.normal(size=NUMBER) > 1).astype(np.int64)
    bins = random.uniform(size=(NUMBER, 2)).astype(np.float32)
    return to_table(Rows({"minutes_z_score": minutes, "age_bins": bins, "plan_vocab": plan}, churned))


def make_data() -> TrainingData:
    inputs = describe_inputs(FEATURES)
    return TrainingData(
        make_table(0),
        make_table(1),
        task="binary",
        classes=(),
        columns=name_columns(inputs),
        id_columns=("plan_vocab",),
        seed=1,
        seconds=None,
        label="label",
        weight=None,
        inputs=inputs,
    )


def find_block(word: str) -> str:
    """Return the block of the page that contains a word."""
    [block] = [block for block in doc_pages.blocks(PAGE, "python") if word in block]
    return block


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "library",
    [
        "sklearn",
        "tensorflow",
        pytest.param("lightgbm", marks=pytest.mark.slow),
        pytest.param("torch", marks=pytest.mark.slow),
    ],
)
def test_model_of_the_page_is_converted(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if environment := ENVIRONMENT.get(library):
        folders = [*(doc_pages.ROOT / ".cache" / environment).glob("lib/python3*/site-packages")]
        if not folders:
            pytest.skip(f"{library} is not installed; `tools/environment.sh {environment}` installs it")
        monkeypatch.setattr(sys, "path", [*sys.path, *map(str, folders)])
        for package in (library, *(["onnx"] if library == "torch" else [])):
            pytest.importorskip(package)
    file = tmp_path / "models.py"
    file.write_text(find_block(f"import {library}" if library != "sklearn" else "from sklearn"))
    data = make_data()
    model = runpy.run_path(str(file))["train"](data)
    network = convert(model, data, FEATURES).build_network(FEATURES, BinaryHead())
    arrays = {name: tf.constant(to_array(data.validation[name])) for name in FEATURES.features}
    predicted = tf.sigmoid(network(arrays)).numpy()[:, 0]
    Tolerance(1e-6, 1e-5).assert_close(predicted, predict(library, model, data))
    assert roc_auc_score(data.validation["label"].to_numpy(), predicted) > (0.7 if library == "tensorflow" else 0.9)


def predict(library: str, model: Any, data: TrainingData) -> Any:
    """Return the predictions of the library itself for the rows held out."""
    if library == "tensorflow":
        label, plan = (data.train[name].to_numpy() for name in ("label", "plan_vocab"))
        rates = np.array([label[plan == number].mean() for number in range(4)])
        return rates[data.validation["plan_vocab"].to_numpy()]
    numbers = data.numbers(data.validation)
    if library == "sklearn":
        return model.predict_proba(numbers)[:, 1]
    return model.predict(numbers) if library == "lightgbm" else expit(model.predict(data.validation))


def test_functions_of_logits_are_marked() -> None:
    data = make_data()
    model = TensorFlowModel(lambda features: 3.0 * features["minutes_z_score"], output="logits")
    network = convert(model, data, FEATURES).build_network(FEATURES, BinaryHead())
    arrays = {name: tf.constant(to_array(data.validation[name])) for name in FEATURES.features}
    Tolerance(1e-6, 1e-6).assert_close(network(arrays)[:, 0], 3.0 * data.validation["minutes_z_score"].to_numpy())
