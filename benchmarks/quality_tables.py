"""The tables that models are compared on: real ones that come with installed packages, and simulated ones.

Each is a frame of columns, numbers or text, and a label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from components.config_section import Task

TAXI = Path("data/taxi")


@dataclass(frozen=True)
class Sample:
    """A table and its prediction task.

    Attributes:
      rows: the columns; text where it is a category, numbers else. One of them is called `label`.
      label: the argument of `init --label`.
      hidden: columns that only the label is made of, which no model may see.
      task: binary, multiclass or regression.
    """

    rows: pd.DataFrame
    label: str
    task: Task
    hidden: tuple[str, ...] = ()

    def truth(self) -> Any:
        """The label of each row, as a number."""
        if self.label == "label":
            return self.rows["label"].to_numpy()
        return (self.rows["tips"] > 0.2 * self.rows["fare"]).to_numpy().astype(int)

    def features(self) -> pd.DataFrame:
        """The columns that models may see, text as categories."""
        seen = self.rows.drop(columns=["label", *self.hidden], errors="ignore")
        texts = [name for name, column in seen.items() if column.dtype == object]
        return seen.astype(dict.fromkeys(texts, "category"))


def taxi() -> Sample:
    """15,002 real trips; whether the tip is more than a fifth of the fare."""
    files = sorted(TAXI.glob("*.csv"))
    return Sample(pd.concat([pd.read_csv(file) for file in files]), "tips > 0.2 * fare", "binary", ("tips",))


def breast_cancer() -> Sample:
    """569 tumours, 30 numbers each."""
    return _of(datasets.load_breast_cancer(as_frame=True), "binary")


def wine() -> Sample:
    """178 wines of three cultivars, 13 numbers each."""
    return _of(datasets.load_wine(as_frame=True), "multiclass")


def digits() -> Sample:
    """1,797 written digits as 64 whole numbers each."""
    return _of(datasets.load_digits(as_frame=True), "multiclass")


def diabetes() -> Sample:
    """442 patients, 10 numbers each; how the disease went on."""
    return _of(datasets.load_diabetes(as_frame=True), "regression")


def tails(rows: int = 12_000) -> Sample:
    """Simulated: three amounts of which nine tenths are 0 and the rest have a long tail, four numbers, three texts."""
    random = np.random.default_rng(0)
    amounts = [np.where(random.random(rows) < 0.9, 0, random.lognormal(6, 1.5, rows)).round() for _ in range(3)]
    plain = [random.normal(size=rows) for _ in range(4)]
    codes = [random.integers(0, 12, rows) for _ in range(3)]
    odds = -1.2 + 1.5 * (amounts[0] > 700) - 2.0 * ((amounts[0] > 0) & (amounts[0] < 150)) + 2.0 * (amounts[2] > 3000)
    odds += 1.2 * np.sin(2 * np.log1p(amounts[1])) * (amounts[1] > 0)
    odds += 0.8 * plain[0] - 0.6 * (plain[1] > 0.5) * plain[2]
    odds += sum(random.normal(0, 0.6, 12)[code] for code in codes)
    columns = {f"amount_{number}": values for number, values in enumerate(amounts)}
    columns |= {f"number_{number}": values for number, values in enumerate(plain)}
    columns |= {f"text_{number}": np.array([f"t{each}" for each in code], object) for number, code in enumerate(codes)}
    return Sample(pd.DataFrame({**columns, "label": _drawn(random, odds)}), "label", "binary")


def census(rows: int = 20_000) -> Sample:
    """Simulated: people as a census has them; rare categories, missing texts, amounts that are nearly always 0."""
    random = np.random.default_rng(1)
    age = np.clip(random.gamma(6, 6.5, rows), 17, 90).round()
    years = np.clip(random.normal(10, 2.6, rows).round(), 1, 16)
    hours = np.where(random.random(rows) < 0.45, 40, np.clip(random.normal(40, 13, rows).round(), 1, 99))
    gain = np.where(random.random(rows) < 0.917, 0, random.lognormal(8.5, 1.1, rows).round())
    job, kin, country = random.zipf(1.3, rows) % 15, random.integers(0, 6, rows), random.zipf(1.3, rows) % 42
    state = np.where(kin < 2, 0, random.integers(1, 7, rows))
    odds = -2.3 + 0.33 * (years - 10) + 2.1 * (state == 0) + 0.03 * (hours - 40) - 0.0017 * (age - 48) ** 2
    odds += random.normal(0, 0.7, 15)[job] + random.normal(0, 0.4, 42)[country] * (random.random(rows) < 0.5)
    odds += 3.5 * (gain > 6800) - 1.0 * ((gain > 0) & (gain < 3000)) + 0.12 * (years - 10) * (state == 0)

    def text(codes: Any, letter: str, missing: float) -> Any:
        return np.where(random.random(rows) < missing, None, [f"{letter}{code}" for code in codes])

    return Sample(
        pd.DataFrame(
            {
                "age": age,
                "years": years,
                "hours": hours,
                "gain": gain,
                "weight": random.lognormal(12, 0.5, rows).round(),
                "job": text(job, "j", 0.057),
                "kin": text(kin, "k", 0),
                "state": text(state, "s", 0),
                "country": text(country, "c", 0.018),
                "label": _drawn(random, odds),
            }
        ),
        "label",
        "binary",
    )


TABLES: dict[str, Callable[[], Sample]] = {
    "taxi": taxi,
    "breast_cancer": breast_cancer,
    "wine": wine,
    "digits": digits,
    "diabetes": diabetes,
    "tails": tails,
    "census": census,
}


def _of(bunch: Any, task: Task) -> Sample:
    names = {name: "".join(sign if sign.isalnum() else "_" for sign in name) for name in bunch.data.columns}
    return Sample(bunch.data.rename(columns=names).assign(label=bunch.target), "label", task)


def _drawn(random: np.random.Generator, odds: Any) -> Any:
    return (random.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(int)
