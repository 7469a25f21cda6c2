"""A function `model.train` trains a model of another library, which is exported and predicts as the library does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.base.errors import InputError
from components.models.config import ModelConfig
from tests.support.data import train_functions
from tests.support.data.tolerances import Tolerance
from tests.support.programs import training_output
from tests.support.runs.trainer_runs import Prepared, Training
from tests.support.servers.in_fork_server import in_child

NOT_CALIBRATED = {"calibration": "none"}
CACHE = Path(__file__).parents[2] / ".cache"
FUNCTIONS = [
    pytest.param("forest", None, marks=pytest.mark.extended),
    pytest.param("booster", "quality", marks=pytest.mark.slow),
    pytest.param("trees", "autogluon", marks=pytest.mark.slow),
    pytest.param("network", "autogluon", marks=pytest.mark.slow),
]


def make_model(function: str) -> dict[str, Any]:
    # All fields, so that defaults replace the network's fields of the prepared config.
    return ModelConfig(train=function).model_dump()


def predict(folder: Path, features: dict[str, Any]) -> Any:
    """Return what the exported model predicts for transformed features, [rows]."""
    import tensorflow as tf

    signature = tf.saved_model.load(str(folder / "model" / "Format-Serving")).signatures["transformed"]
    specs = signature.structured_input_signature[1]
    inputs = {name: tf.cast(features[name], spec.dtype) for name, spec in specs.items()}
    return signature(**inputs)["probability"].numpy()[:, 0]


@pytest.mark.parametrize(("function", "environment"), FUNCTIONS)
def test_exported_model_predicts_as_the_library_does(
    prepared: Prepared, function: str, environment: str | None, tmp_path: Path
) -> None:
    if environment and not (CACHE / environment).exists():
        pytest.skip(f"the libraries are not installed; `tools/environment.sh {environment}` installs them")
    module, file = tmp_path / "functions.py", tmp_path / "predictions.npz"
    module.write_text(
        "from tests.support.data import train_functions\n\n\n"
        f"def train(data):\n    return train_functions.{function}(data, {str(file)!r})\n"
    )
    Training(prepared, tmp_path, NOT_CALIBRATED, model=make_model(str(module))).end()
    stored = np.load(file)
    columns = dict(zip(stored["columns"], stored["numbers"].T, strict=True))
    bins = sorted(name for name in columns if name.startswith("age_piecewise_linear."))
    features = {**columns, "age_piecewise_linear": np.column_stack([columns[name] for name in bins])}
    predicted = in_child(tmp_path / "predict.log", predict, tmp_path, features)
    Tolerance(1e-6, 1e-5).assert_close(predicted, stored["predictions"])
    assert training_output.measure_served(prepared, tmp_path)[0] > 0.95
    log = (tmp_path / "node.log").read_text()
    assert float(re.findall(r"largest difference (\S+) on \d+ rows", log)[-1]) < 1e-5


@pytest.mark.extended
def test_missing_package_is_named_with_the_line(prepared: Prepared, tmp_path: Path) -> None:
    path = f"{train_functions.__file__}:without_package"
    with pytest.raises(InputError, match=r"train_functions.py:\d+: .*No module named 'no_such_library'") as raised:
        Training(prepared, tmp_path, {}, model=make_model(path)).end()
    assert raised.value.remedy.startswith("install the package with the module 'no_such_library' into .venv")
