"""A small synthetic table of people, and its config: a whole pipeline takes seconds instead of a minute."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import yaml

COLUMNS = ("age", "hours", "city", "income", "spent")

CONFIG: dict[str, Any] = {
    "data": {"label": "income == '>50K'", "csv": {"delimiter": ";", "null_values": ["NA"]}},
    "features": {"columns": {"age": "z_score", "hours": {"bucketize": {"buckets": 4}}, "city": "vocab"}},
    "model": {"kind": "mlp", "hidden": [8]},
    "training": {"steps": 200, "batch_size": 64, "learning_rate": 0.02},
    "evaluation": {"metrics": ["auc"], "slices": ["city"], "thresholds": {"auc": {"min": 0.7}}},
    # Runs on shipped data use InfraValidator. Here its server would take as long to start as the rest of the run.
    "serving": {"check": "none"},
}
"""Binary, without a curated schema. Who works much and is not too young earns more."""

SCHEMA = """
feature { name: "age" type: FLOAT value_count { max: 1 } presence { min_count: 1 } }
feature {
  name: "hours" type: INT value_count { max: 1 } presence { min_fraction: 1 min_count: 1 }
  int_domain { min: 0 max: 80 }
}
feature {
  name: "city" type: BYTES value_count { max: 1 } presence { min_count: 1 }
  string_domain { name: "city" value: "Paris" value: "New; York" value: "Łódź" }
}
feature { name: "income" type: BYTES value_count { max: 1 } presence { min_fraction: 1 min_count: 1 } }
feature { name: "spent" type: FLOAT value_count { max: 1 } presence { min_fraction: 1 min_count: 1 } }
"""
"""A curated schema of these rows."""

REGRESSION = (
    "features.columns={hours: z_score}",
    "data.label=spent",
    "data.task=regression",
    "evaluation.metrics=[]",
    "evaluation.thresholds={mean_squared_error: {max: 1}}",
)
"""The same table with another task: what a person spends, in hundreds, which has a variance of about 2."""


def rows(count: int = 500, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of COLUMNS; some ages and cities are missing."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        age, hours = float(random.integers(18, 70)), int(random.integers(10, 60))
        rich = hours + age / 2 + random.normal(0, 4) > 55
        rows.append(
            {
                "age": "NA" if random.random() < 0.1 else age + 0.5,
                "hours": hours,
                "city": "" if random.random() < 0.1 else random.choice(["Łódź", "Paris", "New; York"]),
                "income": ">50K" if rich else "<=50K",
                "spent": round(hours / 10 + random.normal(0, 0.2), 2),
            }
        )
    return rows


def write(path: Path, table: list[dict[str, Any]], delimiter: str = ";") -> Path:
    """Write rows as CSV; the keys of the first row are the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(table)
    return path


def write_new(path: Path) -> Path:
    """Write 300 rows to predict: with a key, `id`, and without the label."""
    table = [{"id": f"{at:04}", **row} for at, row in enumerate(rows(300, seed=7))]
    return write(path, [{name: value for name, value in row.items() if name != "income"} for row in table])


def project(folder: Path, name: str = "people", **sections: Any) -> Path:
    """Write 500 rows and a config with these sections into a folder; return the config."""
    return write_config(folder / f"{name}.yaml", write(folder / "people.csv", rows()), **sections)


def write_config(path: Path, table: Path, **sections: Any) -> Path:
    """Write a config for a file of people.

    Args:
      path: the YAML file.
      table: the rows.
      sections: whole sections that replace CONFIG's.
    """
    content = {**CONFIG, **sections}
    content["data"] = {"path": str(table), **content["data"]}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path
