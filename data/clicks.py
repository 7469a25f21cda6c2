"""Simulate the clicks example's data: impressions of offers, clicked or not, with a known true click probability.

    python -m data.clicks                       200,000 impressions, to data/clicks/clicks.csv
    python -m data.clicks --rows 10_000_000     a million distinct ids

The data resembles the logs that click-through models learn from: a few users, items and sites have many of the rows, a
long tail has the rest, values are missing, and clicks depend strongly on the ids. The true probability of each row is
written to `clicks.truth.csv`, so that the best possible AUC is known. data/README.md describes each column.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data.draws import Floats, Keys, normal, uniform
from data.output import finish, positive
from data.tables import blocks, is_written, table_file

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

DEFAULT_OUTPUT = Path("data/clicks/clicks.csv")
SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "item": pa.string(),
        "site": pa.string(),
        "hour": pa.int64(),
        "device": pa.string(),
        "banner_position": pa.int64(),
        "price": pa.float64(),
        "idle_hours": pa.float64(),
        "clicked": pa.int64(),
    }
)
TRUTH_SCHEMA = pa.schema({"probability": pa.float64()})

ROWS_PER_ID = {"user": 15, "item": 40, "site": 100}
"""Rows per id, so that the number of ids grows with the number of rows."""
ZIPF = {"user": 0.7, "item": 0.9, "site": 1.1}
"""Exponent s of the Zipf distribution: the probability of the n-th most frequent id is proportional to n^-s."""
MISSING = {"site": 0.03, "device": 0.05, "price": 0.10, "idle_hours": 0.20}
"""Share of missing values per column. Values of other columns are never missing."""
ZERO_PRICE = 0.30
"""Share of free offers, with price 0, among the known prices."""

ID_EFFECT = {"user": 0.6, "item": 0.7, "site": 0.6}
"""Standard deviation of the effect of an id on the log-odds of a click."""
TASTE_EFFECT, TASTE_SIZE = 0.6, 4
"""Standard deviation of the effect of a match of user and item, which is the dot product of two hidden vectors of this
size."""
_DEVICES = pa.array(["phone", "desktop", "tablet", "tv", "console"])
_DEVICE_SHARE = np.array([0.55, 0.30, 0.10, 0.03, 0.02])
_DEVICE_EFFECT = np.array([0.25, -0.25, 0.10, -0.80, -0.50])
_HOUR_SHARE = 1.0 + 0.8 * np.cos(2 * np.pi * (np.arange(24) - 20) / 24)
_POSITION_SHARE = 0.6 ** np.arange(8)
_BASE = -2.2
"""Log-odds of a click without any effect. About 15 % of the impressions are then clicked."""
_SCORED = 1 << 20
"""Maximum number of rows for the printed AUC, so that memory is bounded."""


@dataclass(frozen=True)
class Draws:
    """The drawn values of some rows, including the values that are missing in the data.

    Attributes:
      chosen: Column (user, item, site, hour, device, banner_position) → index of the value, int64, shape [rows].
      price: Price of the offer, float64, shape [rows].
      idle: Hours since the user's last visit, float64, shape [rows].
      known: Column → whether the value is present in the data, bool, shape [rows].
      open_log_odds: Log-odds of a click from all columns except the ids, float64, shape [rows].
    """

    chosen: dict[str, Ints]
    price: Floats
    idle: Floats
    known: dict[str, Bools]
    open_log_odds: Floats


class Impressions:
    """A simulated log of impressions. Any slice of the log can be made separately.

    Args:
      rows: Length of the whole log, which determines the number of ids.
      seed: Seed of the log. Logs with different seeds have different users, items and sites.
    """

    def __init__(self, rows: int, seed: int) -> None:
        self._seed = seed
        self._shares = {
            kind: _cumulative(np.arange(1.0, max(rows // per_id, 50) + 1) ** -ZIPF[kind])
            for kind, per_id in ROWS_PER_ID.items()
        } | {
            "hour": _cumulative(_HOUR_SHARE),
            "device": _cumulative(_DEVICE_SHARE),
            "banner_position": _cumulative(_POSITION_SHARE),
        }

    def make_rows(self, start: int, stop: int) -> pa.Table:
        """Return the rows `start` to `stop - 1` that a model may use, with the label; columns as in `SCHEMA`."""
        return self.make_rows_and_truth(start, stop)[0]

    def make_truth(self, start: int, stop: int) -> pa.Table:
        """Return the true click probability of the rows `start` to `stop - 1`."""
        return self.make_rows_and_truth(start, stop)[1]

    def make_rows_and_truth(self, start: int, stop: int) -> tuple[pa.Table, pa.Table]:
        """Return the results of `make_rows` and `make_truth`, computed once."""
        drawn = self.draw(start, stop)
        log_odds = drawn.open_log_odds + self._id_effects(drawn.chosen, drawn.known)
        # Rounded, because the last bits of exp and log differ between machines, and the drawn labels must not.
        probability = np.round(1.0 / (1.0 + np.exp(-log_odds)), 6)
        columns = {kind: _id_strings(kind[0], drawn.chosen[kind]) for kind in ROWS_PER_ID}
        columns["device"] = _DEVICES.take(pa.array(drawn.chosen["device"]))
        columns |= {name: pa.array(drawn.chosen[name]) for name in ("hour", "banner_position")}
        columns |= {"price": pa.array(drawn.price), "idle_hours": pa.array(drawn.idle)}
        columns |= {name: pc.if_else(pa.array(mask), columns[name], None) for name, mask in drawn.known.items()}
        keys = np.arange(start, stop, dtype=np.uint64)
        columns["clicked"] = pa.array((self._uniform("click", keys) < probability).astype(np.int64))
        table = pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
        return table, pa.table([pa.array(probability)], schema=TRUTH_SCHEMA)

    def draw(self, start: int, stop: int) -> Draws:
        """Draw the rows `start` to `stop - 1`."""
        keys = np.arange(start, stop, dtype=np.uint64)
        chosen = {name: np.searchsorted(shares, self._uniform(name, keys)) for name, shares in self._shares.items()}
        price, idle = self._draw_price(keys), np.round(np.exp(3.0 + 1.3 * normal(self._seed, "idle_hours", keys)), 1)
        known = {name: self._uniform(f"{name} known", keys) >= share for name, share in MISSING.items()}
        return Draws(chosen, price, idle, known, _BASE + _open_effects(chosen, price, idle, known))

    def count_ids(self, kind: str) -> int:
        """Return the number of ids of a kind: user, item or site."""
        return len(self._shares[kind])

    def _uniform(self, name: str, keys: Keys) -> Floats:
        return uniform(self._seed, name, keys)

    def _draw_price(self, keys: Keys) -> Floats:
        """Draw prices that are zero or log-normal; one offer in ten thousand costs over 200 times the median."""
        positive_price = np.maximum(np.round(np.exp(2.5 + 1.5 * normal(self._seed, "price", keys)), 2), 0.01)
        return np.where(self._uniform("price zero", keys) < ZERO_PRICE, 0.0, positive_price)

    def _id_effects(self, chosen: dict[str, Ints], known: dict[str, Bools]) -> Floats:
        """Return the sum of the effects of user, item and site, and of the match of user and item, on the log-odds.

        Each number is drawn from the hash of its id when it is needed, so that no table of a million ids is needed.
        """
        user, item, site = (chosen[kind].astype(np.uint64) for kind in ("user", "item", "site"))
        effect = ID_EFFECT["user"] * normal(self._seed, "user effect", user)
        effect += ID_EFFECT["item"] * normal(self._seed, "item effect", item)
        effect += np.where(known["site"], ID_EFFECT["site"] * normal(self._seed, "site effect", site), 0.0)
        tastes = (
            normal(self._seed, f"user taste {k}", user) * normal(self._seed, f"item taste {k}", item)
            for k in range(TASTE_SIZE)
        )
        return effect + TASTE_EFFECT / np.sqrt(TASTE_SIZE) * sum(tastes)


def best_auc(truth: Floats, clicked: Ints) -> float:
    """Return the AUC of the true probabilities, the best that a model can be expected to reach on these rows.

    Args:
      truth: True click probabilities, float64, shape [rows].
      clicked: Labels 0 or 1, int64, shape [rows].

    Returns:
      The AUC, or NaN if only one of the labels occurs.
    """
    _, place, count = np.unique(truth, return_inverse=True, return_counts=True)
    # The AUC is the probability that a clicked row ranks above an unclicked row. Equal probabilities share their ranks.
    mean_rank = np.cumsum(count) - (count - 1) / 2
    hits = int(clicked.sum())
    misses = len(truth) - hits
    if not hits or not misses:
        return float("nan")
    return float((mean_rank[place][clicked == 1].sum() - hits * (hits + 1) / 2) / (hits * misses))


def truth_path(output: Path) -> Path:
    """Return the path of the true probabilities of the rows in `output`: clicks.csv → clicks.truth.csv."""
    return output.with_suffix(f".truth{output.suffix}")


def make(rows: int, seed: int, output: Path) -> str:
    """Write `rows` impressions and their true probabilities unless they exist; return a line for the terminal."""
    log = Impressions(rows, seed)
    started = time.perf_counter()
    if is_written(output, rows, log.make_rows) and is_written(truth_path(output), rows, log.make_truth):
        return f"{output}: already exists, nothing to do"
    # The two files belong together, so the old rows are removed before the new truth is written.
    output.unlink(missing_ok=True)
    truths, clicks = [], []
    with table_file(output, SCHEMA) as sink, table_file(truth_path(output), TRUTH_SCHEMA) as truth_sink:
        for start, stop in blocks(rows):
            table, truth = log.make_rows_and_truth(start, stop)
            sink.write_table(table)
            truth_sink.write_table(truth)
            if start < _SCORED:
                truths.append(truth["probability"].to_numpy())
                clicks.append(table["clicked"].to_numpy())
    auc = best_auc(np.concatenate(truths), np.concatenate(clicks))
    return (
        f"{output}: {rows:,} rows, {output.stat().st_size:,} bytes, {time.perf_counter() - started:.1f} s; "
        f"best AUC {auc:.4f}"
    )


def _open_effects(chosen: dict[str, Ints], price: Floats, idle: Floats, known: dict[str, Bools]) -> Floats:
    """Return the log-odds from all columns except the ids; missing values contribute 0."""
    cost = np.where(price == 0, 0.5, -0.25 * (np.log(np.maximum(price, 0.01)) - 2.5))
    effect = 0.35 * np.cos(2 * np.pi * (chosen["hour"] - 20) / 24) - 0.25 * chosen["banner_position"]
    effect += np.where(known["device"], _DEVICE_EFFECT[chosen["device"]], 0.0)
    effect += np.where(known["price"], cost, 0.0)
    return effect + np.where(known["idle_hours"], -0.3 * (np.log1p(idle) - 3.0), 0.0)


def _cumulative(shares: Floats) -> Floats:
    """Return the cumulative shares, scaled so that the last is exactly 1."""
    total = np.cumsum(shares)
    return total / total[-1]


def _id_strings(letter: str, ranks: Ints) -> pa.Array:
    """Return ids such as u2654435770.

    Ranks are multiplied by an odd number modulo 2^32, which is a bijection, so that ids do not reveal their frequency.
    """
    numbers = (ranks.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B1) % np.uint64(2**32)
    return pc.binary_join_element_wise(letter, pc.cast(pa.array(numbers), pa.string()), "")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.clicks", description="Simulate a log of ad impressions.")
    parser.add_argument("--rows", type=positive, default=200_000, help="number of impressions (default: 200000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the log (default: 0)")
    parser.add_argument("--output", type=Path, help=f"file to write, .csv or .parquet (default: {DEFAULT_OUTPUT})")
    parser.add_argument("--parquet", action="store_true", help="write Parquet instead of CSV")
    args = parser.parse_args(arguments)
    output = args.output or DEFAULT_OUTPUT
    return finish(lambda: make(args.rows, args.seed, output.with_suffix(".parquet") if args.parquet else output))


if __name__ == "__main__":
    sys.exit(main())
