"""The converter of each library, chosen by the class of the model that a user's function returned."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from components.base.errors import InputError
from components.models.inputs import Inputs
from components.trainer.frameworks import lightgbm_trees, onnx_model, scikit_learn, xgboost_trees
from components.trainer.frameworks.predictor import FunctionLayer, OnnxModel, Predictor, TensorFlowModel
from components.trainer.frameworks.training_data import TrainingData, to_array

_PAGE = "docs/how-to/frameworks.md"


def convert(model: Any, data: TrainingData, features: Inputs) -> Predictor:
    """Convert a trained model to TensorFlow.

    Args:
      model: What the user's function returned.
      data: What it received.
      features: The transformed features.

    Raises:
      InputError: If the model is of a kind that is not converted.
    """
    libraries = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if "lightgbm" in libraries:
        return _convert_lightgbm(model, data)
    if "xgboost" in libraries:
        return _convert_xgboost(model, data)
    if "sklearn" in libraries:
        names = getattr(model, "feature_names_in_", [None] * getattr(model, "n_features_in_", 0))
        return scikit_learn.convert(model, data, _find_columns(names, data))
    if isinstance(model, OnnxModel):
        return Predictor(onnx_model.OnnxLayer(model.content, data, features), model.output, model.predict, model.output)
    if "torch" in libraries:
        raise InputError(
            f"model.train: expected an OnnxModel for a network of PyTorch, received {type(model).__name__}",
            f"export it with torch.onnx.export; {_PAGE} has an example",
        )
    if isinstance(model, TensorFlowModel) or callable(model):
        return _wrap_function(model if isinstance(model, TensorFlowModel) else TensorFlowModel(model), features)
    raise InputError(
        "model.train: expected a model of scikit-learn, LightGBM or XGBoost, an OnnxModel or a TensorFlowModel, "
        f"received {type(model).__module__}.{type(model).__qualname__}",
        f"return the trained model; {_PAGE} has examples",
    )


def _convert_lightgbm(model: Any, data: TrainingData) -> Predictor:
    booster = getattr(model, "booster_", model)
    dump = booster.dump_model()
    columns = _find_columns(dump["feature_names"], data)
    layer, output = lightgbm_trees.convert(dump, data.inputs, columns)
    return Predictor(layer, output, lambda table: booster.predict(data.numbers(table).iloc[:, columns]))


def _convert_xgboost(model: Any, data: TrainingData) -> Predictor:
    library: Any = sys.modules["xgboost"]
    is_wrapper = hasattr(model, "get_booster")
    booster = model.get_booster() if is_wrapper else model
    # As in XGBoost, a model of the scikit-learn interface stops at its best iteration, and a Booster does not.
    best = getattr(model, "best_iteration", None) if is_wrapper and booster.attr("best_iteration") else None
    iterations = None if best is None else best + 1
    columns = _find_columns(booster.feature_names or [None] * booster.num_features(), data)
    content = json.loads(bytes(booster.save_raw("json")))
    layer, output = xgboost_trees.convert(content, iterations, data.inputs, columns)

    def predict(table: Any) -> Any:
        numbers = data.numbers(table).iloc[:, columns]
        rows = library.DMatrix(numbers if booster.feature_names else numbers.to_numpy())
        return booster.predict(rows, iteration_range=(0, iterations or 0))

    return Predictor(layer, output, predict)


def _wrap_function(model: TensorFlowModel, features: Inputs) -> Predictor:
    layer = FunctionLayer(model.call, features)

    def predict(table: Any) -> Any:
        return layer({name: to_array(table[name]) for name in features.features}).numpy()

    return Predictor(layer, model.output, predict, model.output)


def _find_columns(names: Sequence[str | None], data: TrainingData) -> list[int]:
    """Return the columns of `data.numbers` that a model reads: by their names, or all columns if it lacks names.

    Raises:
      InputError: If the model reads other columns.
    """
    known = {name: number for number, name in enumerate(data.columns)}
    if all(name in known for name in names):
        return [known[str(name)] for name in names]
    if len(names) == len(known):
        return list(range(len(known)))
    raise InputError(
        f"model.train: expected a model of the {len(known)} columns of `numbers`, received one of {len(names)} columns",
        "train with data.numbers(data.train), or with some of its columns as a DataFrame, which keeps their names",
    )
