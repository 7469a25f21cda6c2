"""The tables of the benchmark of `init`: real trips, and simulated rows of several shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TAXI = Path("data/taxi")


@dataclass(frozen=True)
class Sample:
    """A table and its label.

    Attributes:
      rows: The table. Categories are texts, and other columns are numbers.
      label: Argument of `init --label`.
    """

    rows: pd.DataFrame
    label: str


def taxi() -> Sample:
    """Load the 15,002 real trips; the label is whether the tip is more than a fifth of the fare."""
    files = sorted(TAXI.glob("*.csv"))
    return Sample(pd.concat([pd.read_csv(file) for file in files]), "tips > 0.2 * fare")


def census(rows: int = 20_000) -> Sample:
    """Simulate people of a census: rare categories, missing texts, amounts that are nearly always 0."""
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
                "label": _draw_labels(random, odds),
            }
        ),
        "label",
    )


def many_categories(rows: int = 50_000) -> Sample:
    """Simulate 20 numbers and ten categories of 3 to 5,000 values, most of them rare; the rarest ones matter."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"n{number}": random.normal(size=rows) for number in range(20)}
    codes = [random.zipf(1.3, rows) % size for size in (3, 5, 8, 12, 30, 100, 500, 2000, 2000, 5000)]
    columns |= {f"c{number}": [f"v{code}" for code in values] for number, values in enumerate(codes)}
    odds = columns["n0"] + columns["n1"] * columns["n2"] + random.normal(size=5000)[codes[9]] + (codes[2] == 1)
    return Sample(pd.DataFrame({**columns, "label": _draw_labels(random, odds)}), "label")


def wide(rows: int = 5_000) -> Sample:
    """Simulate 800 numbers, of which the label depends on ten."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(rows, 800)).round(4)
    table = pd.DataFrame(numbers, columns=[f"n{number}" for number in range(800)])
    return Sample(table.assign(label=_draw_labels(random, numbers[:, :10].sum(axis=1))), "label")


def many_classes(rows: int = 10_000) -> Sample:
    """Simulate 20 numbers whose means differ between 32 classes."""
    random = np.random.default_rng(0)
    label = random.integers(0, 32, rows)
    numbers = (random.normal(size=(32, 20))[label] + random.normal(size=(rows, 20))).round(4)
    table = pd.DataFrame(numbers, columns=[f"n{number}" for number in range(20)])
    return Sample(table.assign(label=[f"class {number}" for number in label]), "label")


def _draw_labels(random: np.random.Generator, odds: Any) -> Any:
    return (random.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(int)
