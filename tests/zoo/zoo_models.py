"""Tables for whole runs; together they use every kind of model, task, split, format and serving form.

Labels are drawn from a rule on the columns of their row. The expected results are computed from the run's
predictions and the table, see `test_models`. Nothing here may import the project's code: a test checks it.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image
from sklearn import metrics
from zoo_stores import store_csv, store_images, store_parquet, store_tfrecord, store_two_files

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Output:
    """An output of the model, and what it is measured against.

    Attributes:
      label: the labels of all rows.
      metric: its name in the result of a run.
      compute: (labels, predictions) → the metric; the predictions of classes are their names.
      least: Bound of the metric for a model that has learned the rule: a minimum, or a maximum for errors.
    """

    label: Values
    metric: str
    compute: Callable[[Values, Values], float]
    least: float


@dataclass(frozen=True)
class Run:
    """A whole run.

    Attributes:
      rows: the table; its column `row` numbers the rows.
      sections: the config, without `data.path`.
      outputs: name of an output → what it is measured against.
      store: writes the rows into a folder, and returns `data.path`.
      splits: split → mask of the rows that may be in it. If None, every row may be in every split.
      kept_together: Columns whose rows with equal values must be in the same split.
    """

    rows: pd.DataFrame
    sections: dict[str, Any]
    outputs: Mapping[str, Output]
    store: Callable[[pd.DataFrame, Path], Path]
    splits: Mapping[str, Values] | None = None
    kept_together: tuple[str, ...] = ()


RUNS: dict[str, Callable[[], Run]] = {}
"""Name → makes the run."""


def run(make: Callable[[], Run]) -> Callable[[], Run]:
    """Register a run by the name of its function."""
    RUNS[make.__name__] = make
    return make


@functools.cache
def orders(count: int = 3000) -> pd.DataFrame:
    """Return orders, sorted by time: numbers, categories and a history, with gaps; several labels."""
    random = np.random.default_rng(5)
    price = random.lognormal(3, 1, count).round(2)
    size = random.integers(0, 10, count)
    city = random.integers(0, 6, count)
    item = random.integers(0, 20, count)
    past = [random.choice(20, random.integers(0, 6), replace=False) for _ in range(count)]
    for past_items, chosen in zip(past, item, strict=True):
        if len(past_items) and random.random() < 0.4:
            past_items[-1] = chosen
    is_repeated = np.array([chosen in past_items for chosen, past_items in zip(item, past, strict=True)])
    is_priced, has_city = random.random(count) > 0.1, random.random(count) > 0.1
    score = np.where(is_priced, 2 * (np.log(price) - 3), 0) + np.where(has_city, city - 2.5, 0) - (size - 4.5) / 3
    is_bought = random.random(count) < 1 / (1 + np.exp(-score))
    return pd.DataFrame(
        {
            "row": np.arange(count),
            "time": 1_700_000_000 + 60 * np.arange(count),
            "user": random.integers(0, 200, count),
            "item": item,
            "past": [items.tolist() for items in past],
            "price": np.where(is_priced, price, np.nan),
            "size": size,
            "city": [
                f"city {number}" if is_present else None for number, is_present in zip(city, has_city, strict=True)
            ],
            "part": np.where(np.arange(count) % 4 == 3, "later", "now"),
            "bought": is_bought.astype(int),
            "returned": (is_bought & (random.random(count) < 0.15 + 0.7 * (size > 4))).astype(int),
            "clicked": (random.random(count) < np.where(is_repeated, 0.85, 0.15)).astype(int),
            "grade": np.select(
                [score + random.normal(0, 0.7, count) < bound for bound in (-1, 1)], ["low", "mid"], "top"
            ),
            "amount": (10 + 3 * score + random.normal(0, 1, count)).round(3),
        }
    )


FORMATS = {store_csv: "csv", store_parquet: "parquet", store_tfrecord: "tfrecord", store_two_files: "csv"}
COLUMNS = {"price": "log", "size": "z_score", "city": "vocab"}
SHORT = {"steps": 300, "batch_size": 128, "learning_rate": 0.01}


def _auc(label: str, least: float, metric: str = "auc") -> Output:
    return Output(orders()[label].to_numpy(), metric, lambda y, p: float(metrics.roc_auc_score(y, p)), least)


def _accuracy(labels: Values, least: float) -> dict[str, Output]:
    """Return the accuracy of the most probable class."""
    return {"probabilities": Output(labels, "accuracy", lambda y, p: float(np.mean(p == y)), least)}


def _grade() -> dict[str, Output]:
    return _accuracy(orders()["grade"].to_numpy(), 0.6)


def _run_on_orders(
    kind: str,
    outputs: Mapping[str, Output],
    *,
    data: dict[str, Any],
    evaluation: dict[str, Any],
    store: Callable[[pd.DataFrame, Path], Path] = store_csv,
    columns: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    drop: tuple[str, ...] = ("past",),
    table: pd.DataFrame | None = None,
    **more: Any,
) -> Run:
    """Return a run of a model of this kind on the orders."""
    sections = {
        "data": {"format": FORMATS[store], "task": "binary", **data},
        "features": {"columns": COLUMNS if columns is None else columns},
        "model": {"kind": kind, **(model or {})},
        "training": SHORT if training is None else training,
        "evaluation": evaluation,
    }
    rows = orders() if table is None else table
    return Run(rows.drop(columns=list(drop)), sections, outputs, store, **more)


AUC = {"metrics": ["auc"], "thresholds": {"auc": {"min": 0.6}}}
ACCURACY = {"metrics": ["accuracy"], "thresholds": {"accuracy": {"min": 0.5}}}


def _bought() -> dict[str, Output]:
    return {"probability": _auc("bought", 0.8)}


@run
def linear() -> Run:
    """Return the default split, by a hash of the features."""
    columns = {**COLUMNS, "price": ["log", "missing"]}
    return _run_on_orders(
        "linear",
        _bought(),
        columns=columns,
        data={"label": "bought", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=AUC,
    )


@run
def mlp() -> Run:
    """All orders of a user in one split, read from Parquet."""
    split = {"by": "group", "columns": "user", "train": 3, "eval": 1}
    return _run_on_orders(
        "mlp",
        _grade(),
        data={"label": "grade", "task": "multiclass", "split": split},
        evaluation=ACCURACY,
        store=store_parquet,
        kept_together=("user",),
    )


@run
def listwise() -> Run:
    """Order the rows of every user, of which more are sold than the loss compares at once."""
    return _run_on_orders(
        "mlp",
        _bought(),
        data={"label": "bought", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation={**AUC, "metrics": ["auc", "ndcg_at_10"], "group": "user"},
        model={"loss": "listwise", "list_column": "user", "list_size": 8},
    )


@run
def wide_deep() -> Run:
    """Evaluate on the last fifth of the time, with rows from TFRecord and a numeric label."""
    labels = orders()["amount"].to_numpy()
    count = len(labels)
    return _run_on_orders(
        "wide_deep",
        {"prediction": Output(labels, "r_squared", lambda y, p: float(metrics.r2_score(y, p)), 0.8)},
        data={
            "label": "amount",
            "task": "regression",
            "split": {"by": "time", "columns": "time", "train": 4, "eval": 1},
        },
        evaluation={"metrics": ["r_squared"], "thresholds": {"r_squared": {"min": 0.5}}},
        store=store_tfrecord,
        splits={"train": np.arange(count) < 0.8 * count, "eval": np.arange(count) >= 0.8 * count},
    )


@functools.cache
def tagged_orders() -> pd.DataFrame:
    """Return orders with their tags, any number of which an order has, joined by commas."""
    table, random = orders(), np.random.default_rng(9)
    is_tagged = {
        "cheap": np.nan_to_num(table["price"]) < 12,
        "large": table["size"] > 6,
        "far": [city in ("city 0", "city 1") for city in table["city"]],
    }
    is_tagged = {name: np.asarray(mask) ^ (random.random(len(table)) < 0.1) for name, mask in is_tagged.items()}
    tags = [", ".join(name for name, mask in is_tagged.items() if mask[row]) for row in range(len(table))]
    return table.assign(tags=[text or None for text in tags])


def _split_tags(texts: Values) -> Values:
    """Return whether a row has each of the tags, bool [rows, tags]."""
    sets = [set((text or "").replace(", ", "|").split("|")) for text in texts]
    return np.array([[name in tags for name in ("cheap", "large", "far")] for tags in sets])


@run
def multilabel() -> Run:
    """Several tags per order, or none."""
    return _run_on_orders(
        "wide_deep",
        {
            "predicted": Output(
                tagged_orders()["tags"].to_numpy(),
                "micro_f1",
                lambda y, p: float(metrics.f1_score(_split_tags(y), _split_tags(p), average="micro")),
                0.75,
            )
        },
        data={
            "label": "tags",
            "task": "multilabel",
            "classes": {"separator": ","},
            "split": {"by": "hash", "train": 3, "eval": 1},
        },
        evaluation={"thresholds": {"micro_f1": {"min": 0.6}}},
        table=tagged_orders(),
    )


@functools.cache
def pending_orders() -> pd.DataFrame:
    """Return orders with the time until they are paid, or until the end of the observation; large orders wait."""
    table, random = orders(), np.random.default_rng(11)
    log_price = np.log(np.nan_to_num(table["price"], nan=20.0)) - 3
    waits = random.exponential(10 * np.exp(log_price + (table["size"] - 4.5) / 3))
    ends = random.uniform(5, 40, len(table))
    return table.assign(days=np.minimum(waits, ends).round(3), state=np.where(waits <= ends, "paid", "open"))


def compute_concordance(labels: Values, expected: Values) -> float:
    """Return the share of pairs whose expected times have the order of the times, from all pairs."""
    times, happened = labels.T
    is_pair = (times[:, None] < times) & (happened[:, None] == 1)
    before = (expected[:, None] < expected) + (expected[:, None] == expected) / 2
    return float(before[is_pair].mean())


@run
def survival() -> Run:
    """Time until an event, which has not happened yet in some rows."""
    table = pending_orders()
    labels = np.column_stack([table["days"], table["state"] == "paid"])
    return _run_on_orders(
        "mlp",
        {"prediction": Output(labels, "concordance", compute_concordance, 0.7)},
        data={
            "label": "days",
            "event": "state == 'paid'",
            "task": "survival",
            "split": {"by": "hash", "train": 3, "eval": 1},
        },
        evaluation={"thresholds": {"concordance": {"min": 0.6}}},
        table=table,
    )


@functools.cache
def odd_orders() -> pd.DataFrame:
    """Return orders, whose amount depends on the other columns, except for one order in twenty."""
    table, random = orders(), np.random.default_rng(10)
    is_odd = random.random(len(table)) < 0.05
    amount = table["amount"].to_numpy().copy()
    amount[is_odd] = random.permutation(amount[is_odd])
    return table.assign(amount=amount, odd=is_odd.astype(int))


def _run_on_odd_orders(outputs: Mapping[str, Output], **data: Any) -> Run:
    return _run_on_orders(
        "autoencoder",
        outputs,
        columns={**COLUMNS, "amount": "z_score"},
        data={"task": "anomaly", "split": {"by": "hash", "train": 3, "eval": 1}, **data},
        model={"contamination": 0.05, "hidden": [64, 64]},
        training={**SHORT, "steps": 600},
        evaluation={"thresholds": {"auc": {"min": 0.6}}},
        table=odd_orders(),
    )


@run
def autoencoder() -> Run:
    """Anomalies with labels, which are only evaluated."""
    labels = odd_orders()["odd"].to_numpy()
    score = Output(labels, "auc", lambda y, p: float(metrics.roc_auc_score(y, p)), 0.65)
    return _run_on_odd_orders({"score": score}, label="odd")


@run
def autoencoder_without_labels() -> Run:
    """Anomalies without labels, evaluated on rows with permuted columns."""
    return _run_on_odd_orders({})


@run
def dlrm() -> Run:
    """Split by a column that names the split of a row."""
    is_later = (orders()["part"] == "later").to_numpy()
    return _run_on_orders(
        "dlrm",
        _bought(),
        data={"label": "bought", "split": {"by": "column", "columns": "part", "train": "now", "eval": "later"}},
        evaluation=AUC,
        splits={"train": ~is_later, "eval": is_later},
    )


@run
def dcn_v2() -> Run:
    """Read the splits from separate folders."""
    is_heldout = (orders()["row"] % 4 == 3).to_numpy()
    return _run_on_orders(
        "dcn_v2",
        _bought(),
        data={"label": "bought", "split": {"by": "files", "train": "train/*.csv", "eval": "heldout/*.csv"}},
        evaluation=AUC,
        store=store_two_files,
        splits={"train": ~is_heldout, "eval": is_heldout},
    )


@run
def final_mlp() -> Run:
    """Weight the features of two networks by the price and by the city."""
    return _run_on_orders(
        "final_mlp",
        _bought(),
        data={"label": "bought", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=AUC,
        model={"hidden": [32, 16], "first_gate": "price", "second_gate": ["size", "city"]},
    )


@run
def tabm() -> Run:
    """Return an ensemble of networks, for a number."""
    labels = orders()["amount"].to_numpy()
    return _run_on_orders(
        "tabm",
        {"prediction": Output(labels, "mean_absolute_error", lambda y, p: float(np.abs(y - p).mean()), 2.0)},
        data={"label": "amount", "task": "regression", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation={"metrics": ["mean_absolute_error"], "thresholds": {"mean_absolute_error": {"max": 4}}},
        model={"members": 4},
    )


@run
def gbt() -> Run:
    """Trees."""
    return _run_on_orders(
        "gbt",
        _grade(),
        data={"label": "grade", "task": "multiclass", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=ACCURACY,
        columns={"price": ["pass_through", "missing"], "size": "pass_through", "city": "vocab"},
        training={},
    )


@run
def gbt_linear() -> Run:
    """Trees and a linear model."""
    return _run_on_orders(
        "gbt_linear",
        _bought(),
        data={"label": "bought", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=AUC,
        training={},
    )


@run
def ensemble() -> Run:
    """Trees and networks."""
    return _run_on_orders(
        "ensemble",
        _bought(),
        data={"label": "bought", "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=AUC,
        model={"members": 4},
    )


def _run_on_histories(kind: str) -> Run:
    columns = {"item": "vocab", "size": "z_score", "past": {"sequence": {"of": "item", "max_values": 6}}}
    return _run_on_orders(
        kind,
        {"probability": _auc("clicked", 0.75)},
        data={"label": "clicked", "split": {"by": "group", "columns": "user", "train": 3, "eval": 1}},
        evaluation=AUC,
        store=store_parquet,
        columns=columns,
        drop=(),
        kept_together=("user",),
    )


@run
def din() -> Run:
    """Predict whether the item is in the history, by attention."""
    return _run_on_histories("din")


@run
def bst() -> Run:
    """Predict whether the item is in the history, by self-attention."""
    return _run_on_histories("bst")


def _run_on_labels(kind: str) -> Run:
    return _run_on_orders(
        kind,
        {
            "probability_buy": _auc("bought", 0.8, "buy/auc"),
            "probability_return": _auc("returned", 0.75, "return/auc"),
        },
        data={"labels": {"buy": "bought", "return": "returned"}, "split": {"by": "hash", "train": 3, "eval": 1}},
        evaluation=AUC,
        columns={**COLUMNS, "size": "vocab"},
    )


@run
def esmm() -> Run:
    """Chain two labels: the second is only possible after the first."""
    return _run_on_labels("esmm")


@run
def mmoe() -> Run:
    """Predict two labels with one network."""
    return _run_on_labels("mmoe")


@run
def ple() -> Run:
    """Predict two labels with experts of their own and shared experts."""
    return _run_on_labels("ple")


def _run_on_images(kind: str, size: int, steps: int, least: float, evaluation: dict[str, Any], **model: Any) -> Run:
    """Return images of two classes: bright in the upper or in the lower half."""
    random = np.random.default_rng(8)
    labels = np.array(["above", "below"])[random.integers(0, 2, 240)]
    images = []
    for label in labels:
        pixels = random.integers(0, 120, (size, size, 3), np.uint8)
        half = slice(0, size // 2) if label == "above" else slice(size // 2, size)
        pixels[half] += 100
        images.append(_png(pixels))
    rows = pd.DataFrame({"row": np.arange(240), "image": images, "label": labels})
    sections = {
        "data": {
            "format": "images",
            "label": "label",
            "task": "multiclass",
            "split": {"by": "hash", "train": 3, "eval": 1},
        },
        "features": {"columns": {"image": {"image": {"height": size, "width": size, "channels": 3}}}},
        "model": {"kind": kind, **model},
        "training": {"steps": steps, "batch_size": 32, "learning_rate": 0.003},
        "evaluation": evaluation,
    }
    return Run(rows, sections, _accuracy(labels, least), store_images)


def _png(pixels: Values) -> bytes:
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()


@run
def cnn() -> Run:
    """Return a small network of images in folders."""
    return _run_on_images("cnn", 8, 60, 0.8, ACCURACY)


@run
def application() -> Run:
    """Return a published network of images."""
    # After so few steps it has not learned anything: the test compares only splits, answers and metrics.
    evaluation = {"metrics": ["accuracy"], "thresholds": {"accuracy": {"min": 0}}, "constant": "warn"}
    return _run_on_images("application", 32, 20, 0.0, evaluation, application="MobileNet")


@functools.cache
def interactions() -> pd.DataFrame:
    """Users who choose items of their taste, in the order of their times; no pair repeats."""
    random = np.random.default_rng(9)
    pairs = []
    for user in range(150):
        weights = np.where(np.arange(40) % 4 == user % 4, 6.0, 1.0)
        pairs += [(user, int(item)) for item in random.choice(40, 14, replace=False, p=weights / weights.sum())]
    pairs = [pairs[number] for number in random.permutation(len(pairs))]
    users, items = zip(*pairs, strict=True)
    return pd.DataFrame(
        {
            "row": np.arange(len(pairs)),
            "user": users,
            "item": items,
            "time": 1_700_000_000 + 7 * np.arange(len(pairs)),
            "chosen": 1,
        }
    )


def _run_retrieval(kind: str, split: dict[str, Any], **model: Any) -> Run:
    """Recommend items to users, except items that they have chosen before."""

    def recall(labels: Values, ranks: Values) -> float:
        users = interactions()["user"].to_numpy()[labels]
        return float(pd.Series((ranks > 0) & (ranks <= 10)).groupby(users).mean().mean())

    sections = {
        "data": {"label": "chosen", "task": "retrieval", "split": {"train": 4, "eval": 1, **split}},
        "features": {"columns": {"user": "vocab", "item": "vocab"}},
        "model": {"kind": kind, "item": ["item"], **model},
        "training": {"steps": 400, "batch_size": 128, "learning_rate": 0.01} if kind == "two_tower" else {},
        "evaluation": {
            "group": "user",
            "exclude_seen": "user",
            "metrics": ["group_recall_at_10"],
            "thresholds": {"group_recall_at_10": {"min": 0.1}},
            "constant": "warn",
        },
    }
    rows = interactions()
    # A user has not seen 29 of the 40 items. Ten random items contain the right one with 0.34; about 7 match the taste.
    outputs = {"rank": Output(rows["row"].to_numpy(), "group_recall_at_10", recall, 0.45)}
    return Run(rows, sections, outputs, store_csv)


@run
def two_tower() -> Run:
    """Learn vectors of users and items, and evaluate on the last interactions of every user."""
    return _run_retrieval("two_tower", {"by": "within_time", "columns": ["user", "time"]})


@run
def ease() -> Run:
    """Compute weights between items in closed form, and evaluate on a share of every user's interactions."""
    return _run_retrieval("ease", {"by": "within", "columns": ["user", "item"]})


@run
def item_knn() -> Run:
    """Cosines between items."""
    return _run_retrieval("item_knn", {"by": "within", "columns": ["user", "item"]})


def used(path: str) -> set[str]:
    """Return the values of a field of the config, such as `data.split.by`, in all runs."""
    texts = set()
    for make in RUNS.values():
        value: Any = make().sections
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        texts |= {value} if isinstance(value, str) else set()
    return texts
