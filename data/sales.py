"""Simulate the sales example's data: daily sales of shops, with promotions that are planned in advance.

    python -m data.sales                        8 shops, 560 days, to data/sales/sales.csv
    python -m data.sales --shops 1000

Sales depend on the shop, the weekday, the season, a promotion, a trend, and a level that changes slowly and that only
earlier sales reveal. data/README.md describes each column.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.draws import normal, uniform
from data.output import finish, positive
from data.tables import is_written, table_file

DEFAULT_OUTPUT = Path("data/sales/sales.csv")
SHOPS, DAYS = 8, 560
START = np.datetime64("2024-01-01")
REGIONS = ("north", "south", "west")
SCHEMA = pa.schema(
    {
        "shop": pa.string(),
        "region": pa.string(),
        "date": pa.string(),
        "promotion": pa.int64(),
        "visitors": pa.int64(),
        "sales": pa.int64(),
    }
)
_LEVEL, _LEVEL_DEVIATION = 4.0, 0.5
"""Mean and standard deviation of the shops' logarithm of sales."""
_WEEKDAY, _SEASON, _PROMOTION, _TREND = 0.25, 0.2, 0.4, 0.3
"""Effects on the logarithm: standard deviation of a shop's weekdays, amplitude of the year, a promotion, and the trend
over all days."""
_PERSISTENCE, _CHANGE = 0.95, 0.06
"""The slow level is this share of its last value, plus a change with this standard deviation."""
_PROMOTED, _CLOSED = 0.15, 0.02
"""Share of the days with a promotion, and of the days without a row because the shop is closed."""
_BUYERS = 0.3
"""Sales per visitor."""


def make_rows(shops: int, seed: int) -> pa.Table:
    """Return the rows of all shops, sorted by shop and date; columns as in `SCHEMA`."""
    shop, day = (indices.ravel() for indices in np.indices((shops, DAYS)))
    keys = (shop * DAYS + day).astype(np.uint64)
    dates = START + day
    weekday = dates.astype(np.int64) % 7
    promotion = uniform(seed, "promotion", keys) < _PROMOTED
    level = np.zeros((shops, DAYS))
    changes = _CHANGE * normal(seed, "level", keys).reshape(shops, DAYS)
    for column in range(1, DAYS):
        level[:, column] = _PERSISTENCE * level[:, column - 1] + changes[:, column]
    logarithm = (
        _LEVEL
        + _LEVEL_DEVIATION * normal(seed, "shop", shop.astype(np.uint64))
        + _WEEKDAY * normal(seed, "weekday", (shop * 7 + weekday).astype(np.uint64))
        + _SEASON * np.sin(2 * np.pi * day / 365.25)
        + _PROMOTION * promotion
        + _TREND * day / DAYS
        + level.ravel()
    )
    # For means of this size, a rounded normal number is distributed nearly as a count.
    mean = np.exp(logarithm)
    sales = np.maximum(np.rint(mean + np.sqrt(mean) * normal(seed, "sales", keys)), 0)
    visitors = np.maximum(np.rint(sales / _BUYERS * np.exp(0.1 * normal(seed, "visitors", keys))), sales)
    open_days = pa.array(uniform(seed, "closed", keys) >= _CLOSED)
    columns = {
        "shop": [f"s{number:04}" for number in shop],
        "region": np.array(REGIONS)[shop % len(REGIONS)],
        "date": dates.astype(str),
        "promotion": promotion.astype(np.int64),
        "visitors": visitors.astype(np.int64),
        "sales": sales.astype(np.int64),
    }
    return pa.table(columns, schema=SCHEMA).filter(open_days)


def write(output: Path, shops: int = SHOPS, seed: int = 0) -> str:
    """Write the table, unless it exists with the same rows; return a line for the terminal."""
    rows = make_rows(shops, seed)
    if is_written(output, len(rows), lambda start, stop: rows.slice(start, stop - start)):
        return f"{output}: already exists, nothing to do"
    with table_file(output, SCHEMA) as sink:
        sink.write_table(rows)
    return f"{output}: {len(rows):,} rows, {output.stat().st_size:,} bytes"


def main(arguments: list[str] | None = None) -> int:
    """Write the table and return the exit code."""
    parser = argparse.ArgumentParser(description="Simulate the sales example's data.")
    parser.add_argument("--shops", type=positive, default=SHOPS, help=f"default {SHOPS}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help=f"default {DEFAULT_OUTPUT}")
    options = parser.parse_args(arguments)
    return finish(lambda: write(options.output, options.shops, options.seed))


if __name__ == "__main__":
    sys.exit(main())
