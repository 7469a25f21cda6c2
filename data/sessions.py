"""Simulate the sessions example's data: items shown to users, clicked and bought or not, with the user's past clicks.

    python -m data.sessions                       102,400 impressions, to data/sessions/sessions.parquet
    python -m data.sessions --rows 10_000_000
    python -m data.sessions --click -3            6 % of them are clicked, instead of 19 %

A click depends on the user's earlier clicks: users click items that are similar to their latest clicks while the
session lasts (short interest), and items of their taste at any time (long interest). The true probabilities of each row
are written to `sessions.truth.parquet`, so that the best possible metrics are known. data/README.md describes each
column.
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

from data.clicks import best_auc, truth_path
from data.draws import Floats, Keys, normal, uniform
from data.output import finish, positive
from data.tables import blocks, is_written, table_file

Ints: TypeAlias = npt.NDArray[np.int64]

DEFAULT_OUTPUT = Path("data/sessions/sessions.parquet")
_LISTS = ("past_items", "past_categories", "past_times")
SCHEMA = pa.schema(
    {
        "user": pa.int64(),
        "item": pa.int64(),
        "category": pa.int64(),
        "price": pa.float64(),
        "position": pa.int64(),
        "time": pa.int64(),
        **dict.fromkeys(_LISTS, pa.list_(pa.int64())),
        "clicked": pa.int64(),
        "purchased": pa.int64(),
    }
)
TRUTH_SCHEMA = pa.schema({"click": pa.float64(), "purchase_after_click": pa.float64()})

EVENTS = 64
"""Impressions per user."""
ROWS_PER_ITEM, CATEGORIES = 100, 40
ZIPF = 0.8
"""Exponent of the popularity of items."""
PAST = 20
"""Maximum number of a user's latest clicks in a row."""
NEW_SESSION = 1 / 8
"""Probability that an impression begins a new session, on average 12 hours after the last impression."""
RECOMMENDED = 0.4
"""Share of the impressions with an item from the category of one of the last three clicks."""

LONG, SHORT, QUALITY, POSITION = 0.9, 2.5, 0.7, 0.25
"""Effects on the log-odds of a click: the user's taste, clicks on similar items in the last hour, the quality of the
item, and each position further down (negative)."""
_HOUR = 3600.0
_SIZE = 6
"""Size of the hidden vectors of items and users."""
CLICK, _PURCHASE = -1.9, -1.6
"""Log-odds of a click (default) and of a purchase after a click, without any effect."""
_START, _LENGTH = 1_767_225_600, 28 * 24 * 3600
"""Users arrive from 2026-01-01 on, over this many seconds."""
_DELAY = 20 * _HOUR
"""Mean time between click and purchase, in seconds."""
_END = _START + _LENGTH + 7 * 24 * 3600
"""End of the log, a week after the last user has arrived. Later purchases are not in the log."""
_SCORED = 1 << 20
"""Maximum number of rows for the printed AUC, so that memory is bounded."""


@dataclass
class _Past:
    """The last clicks of some users, in a ring buffer. Click number n of a user is in column n % PAST.

    Attributes:
      items: Indices of the clicked items, int64, shape [users, PAST].
      times: Times of the clicks in seconds since 1970, int64, shape [users, PAST].
      clicks: Number of clicks so far, int64, shape [users].
    """

    items: Ints
    times: Ints
    clicks: Ints

    @classmethod
    def make_empty(cls, users: int) -> _Past:
        return cls(np.zeros((users, PAST), np.int64), np.zeros((users, PAST), np.int64), np.zeros(users, np.int64))

    def add(self, clicked: npt.NDArray[np.bool_], items: Ints, now: Ints) -> None:
        rows = np.flatnonzero(clicked)
        columns = self.clicks[rows] % PAST
        self.items[rows, columns], self.times[rows, columns] = items[rows], now[rows]
        self.clicks[rows] += 1

    def sort_by_time(self) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Return items and times, the oldest first, and a mask of existing clicks; each of shape [users, PAST]."""
        count = np.minimum(self.clicks, PAST)[:, np.newaxis]
        number = (self.clicks[:, np.newaxis] - count + np.arange(PAST)) % PAST
        known = np.arange(PAST) < count
        return np.take_along_axis(self.items, number, 1), np.take_along_axis(self.times, number, 1), known


class Sessions:
    """A simulated log. Any slice of whole users can be made separately.

    Args:
      rows: Length of the whole log, which determines the number of users and items.
      seed: Seed of the log. Logs with different seeds have different users and items.
      click: Log-odds of a click without any effect.
    """

    def __init__(self, rows: int, seed: int, click: float = CLICK) -> None:
        self._seed, self._click = seed, click
        self.items = max(rows // ROWS_PER_ITEM, 10 * CATEGORIES)
        popularity = np.cumsum(np.arange(1.0, self.items + 1) ** -ZIPF)
        self._popularity = popularity / popularity[-1]
        items = np.arange(self.items, dtype=np.uint64)
        centres = self._draw_vectors("category", np.arange(CATEGORIES, dtype=np.uint64))
        # Consecutive popularity ranks belong to different categories, so that all categories are about as popular.
        self._category = np.arange(self.items) % CATEGORIES
        self.vectors = _normalize(
            _normalize(centres)[self._category] + 0.6 * _normalize(self._draw_vectors("item", items))
        )
        self._quality = normal(seed, "quality", items)
        self._appeal = normal(seed, "appeal", items)
        self._price = np.round(np.exp(2.5 + 0.8 * normal(seed, "price", items)), 2)

    def make_rows(self, start: int, stop: int) -> pa.Table:
        """Return the rows `start` to `stop - 1` that a model may use, with the labels; columns as in `SCHEMA`."""
        return self.make_rows_and_truth(start, stop)[0]

    def make_truth(self, start: int, stop: int) -> pa.Table:
        """Return the true probabilities of the rows `start` to `stop - 1`."""
        return self.make_rows_and_truth(start, stop)[1]

    def make_rows_and_truth(self, start: int, stop: int) -> tuple[pa.Table, pa.Table]:
        """Return the results of `make_rows` and `make_truth`, computed once; both bounds are multiples of EVENTS."""
        users = np.arange(start // EVENTS, stop // EVENTS, dtype=np.uint64)
        taste = self._make_tastes(users)
        past = _Past.make_empty(len(users))
        now = _START + (_LENGTH * uniform(self._seed, "arrival", users)).astype(np.int64)
        steps = []
        for step in range(EVENTS):
            keys = users * np.uint64(EVENTS) + np.uint64(step)
            now = now + self._draw_gap(keys)
            steps.append(self._make_impressions(keys, now, taste, past))
        # The events of a user are consecutive rows.
        table = {name: np.stack([columns[name] for columns in steps], axis=1) for name in steps[0]}
        rows = len(users) * EVENTS
        columns = {name: values.reshape(rows, *values.shape[2:]) for name, values in table.items()}
        columns["user"] = np.repeat(_make_ids(users.astype(np.int64)), EVENTS)
        known = columns.pop("known")
        lists = {name: _make_lists(columns[name], known) for name in _LISTS}
        arrays = [lists[name] if name in lists else pa.array(columns[name]) for name in SCHEMA.names]
        truth = pa.table([columns[name] for name in TRUTH_SCHEMA.names], TRUTH_SCHEMA)
        return pa.table(arrays, SCHEMA), truth

    def compute_next_click(
        self, users: Ints, now: Ints, items: Ints, times: Ints, known: npt.NDArray[np.bool_]
    ) -> Floats:
        """Compute the probability that an item is shown next and clicked, averaged over the positions.

        Args:
          users: Indices of users, int64, shape [rows].
          now: Times of the impressions in seconds since 1970, int64, shape [rows].
          items: Indices of the items of the user's last clicks, the oldest first, int64, shape [rows, PAST].
          times: Times of the last clicks, int64, shape [rows, PAST].
          known: Mask of existing clicks, bool, shape [rows, PAST].

        Returns:
          Probabilities, float64, shape [rows, items].
        """
        popular = np.diff(self._popularity, prepend=0.0)
        shown_by_category = np.zeros((CATEGORIES, self.items))
        for category in range(CATEGORIES):
            items_in_category = self._move_to_category(np.arange(self.items), category)
            np.add.at(shown_by_category[category], items_in_category, popular)
        count = known.sum(axis=1)
        shown = np.tile(popular, (len(users), 1))
        for back in range(3):
            recent = np.take_along_axis(items, np.maximum(count - 1 - back, 0)[:, np.newaxis], 1)[:, 0]
            share = np.where(back < count, RECOMMENDED / np.clip(count, 1, 3), 0.0)[:, np.newaxis]
            shown += share * (shown_by_category[self._category[recent]] - popular)
        taste = self._make_tastes(users.astype(np.uint64))
        similar = np.einsum("ih,rph->rip", self.vectors, self.vectors[items])
        log_odds = self._compute_click_log_odds(slice(None), taste @ self.vectors.T, similar, now, times, known)
        edges = np.sqrt(np.arange(9) / 8)
        clicked = sum(
            share * _compute_probability(log_odds - POSITION * position)
            for position, share in enumerate(np.diff(edges))
        )
        return shown * clicked

    def _make_impressions(
        self, keys: Keys, now: Ints, taste: Floats, past: _Past
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Return an impression per user, and add the clicked impressions to the past."""
        items, times, known = past.sort_by_time()
        item = self._choose_items(keys, items, known)
        position = (uniform(self._seed, "position", keys) ** 2 * 8).astype(np.int64)
        similar = np.einsum("uh,uph->up", self.vectors[item], self.vectors[items])
        long = np.einsum("uh,uh->u", self.vectors[item], taste)
        log_odds = self._compute_click_log_odds(item, long, similar, now, times, known)
        click = _compute_probability(log_odds - POSITION * position)
        clicked = uniform(self._seed, "click", keys) < click
        cost = 0.5 * (np.log(self._price[item]) - 2.5)
        purchase_log_odds = _PURCHASE + 0.8 * self._appeal[item] + LONG * long - cost
        # Rounded, because the last bits of exp and log differ between machines, and the drawn labels must not.
        in_time = 1 - np.exp(-(_END - now) / _DELAY)
        purchase = np.round(_compute_probability(purchase_log_odds) * in_time, 6)
        purchased = clicked & (uniform(self._seed, "purchase", keys) < purchase)
        past.add(clicked, item, now)
        return {
            "item": _make_ids(item),
            "category": self._category[item],
            "price": self._price[item],
            "position": position,
            "time": now,
            "past_items": _make_ids(items),
            "past_categories": self._category[items],
            "past_times": times,
            "known": known,
            "clicked": clicked.astype(np.int64),
            "purchased": purchased.astype(np.int64),
            "click": click,
            "purchase_after_click": purchase,
        }

    def _draw_gap(self, keys: Keys) -> Ints:
        """Draw the seconds since the user's last impression: about a minute, or 12 hours before a new session."""
        is_new = uniform(self._seed, "session", keys) < NEW_SESSION
        mean = np.where(is_new, 12 * _HOUR, 60.0)
        return np.ceil(-mean * np.log1p(-uniform(self._seed, "gap", keys))).astype(np.int64)

    def _choose_items(self, keys: Keys, items: Ints, known: npt.NDArray[np.bool_]) -> Ints:
        """Draw the item of each impression by popularity, or from the category of a recent click."""
        popular = np.searchsorted(self._popularity, uniform(self._seed, "item", keys))
        count = known.sum(axis=1)
        back = (uniform(self._seed, "which", keys) * np.minimum(count, 3)).astype(np.int64)
        recent = np.take_along_axis(items, np.maximum(count - 1 - back, 0)[:, np.newaxis], 1)[:, 0]
        similar = self._move_to_category(popular, self._category[recent])
        recommended = (uniform(self._seed, "recommended", keys) < RECOMMENDED) & (count > 0)
        return np.where(recommended, similar, popular)

    def _move_to_category(self, items: Ints, category: Ints | int) -> Ints:
        """Replace items by items of a category that are about as popular."""
        moved = items - items % CATEGORIES + category
        return np.where(moved < self.items, moved, moved - CATEGORIES)

    def _compute_click_log_odds(
        self, item: Ints | slice, long: Floats, similar: Floats, now: Ints, times: Ints, known: npt.NDArray[np.bool_]
    ) -> Floats:
        """Compute the log-odds of a click at the first position.

        Args:
          item: Index of an item per row, int64, shape [rows], or a slice of all items.
          long: Match of items and users' tastes, float64, shape [rows], or [rows, items] if `item` is a slice.
          similar: Similarity of items and past clicks, float64, shape [rows, PAST] or [rows, items, PAST].
          now: Times of the impressions in seconds since 1970, int64, shape [rows].
          times: Times of past clicks, int64, shape [rows, PAST].
          known: Mask of existing clicks, bool, shape [rows, PAST].

        Returns:
          Log-odds, float64, with the shape of `long`.
        """
        recent = np.exp(-(now[:, np.newaxis] - times) / _HOUR) * known
        if similar.ndim > recent.ndim:
            recent = recent[:, np.newaxis]
        short = np.maximum((similar * recent).max(axis=-1), 0.0)
        log_odds: Floats = self._click + LONG * long + SHORT * short + QUALITY * self._quality[item]
        return log_odds

    def _make_tastes(self, users: Keys) -> Floats:
        return _normalize(self._draw_vectors("taste", users)) * np.sqrt(_SIZE) / 2

    def _draw_vectors(self, name: str, keys: Keys) -> Floats:
        return np.stack([normal(self._seed, f"{name} {k}", keys) for k in range(_SIZE)], axis=1)


def make(rows: int, seed: int, output: Path, click: float = CLICK) -> str:
    """Write `rows` impressions, rounded up to whole users, and their true probabilities unless they exist.

    Returns:
      A line for the terminal.
    """
    rows = -(-rows // EVENTS) * EVENTS
    log = Sessions(rows, seed, click)
    started = time.perf_counter()
    if is_written(output, rows, log.make_rows) and is_written(truth_path(output), rows, log.make_truth):
        return f"{output}: already exists, nothing to do"
    # The two files belong together, so the old rows are removed before the new truth is written.
    output.unlink(missing_ok=True)
    scored = []
    with table_file(output, SCHEMA) as sink, table_file(truth_path(output), TRUTH_SCHEMA) as truth_sink:
        for start, stop in blocks(rows):
            table, truth = log.make_rows_and_truth(start, stop)
            sink.write_table(table)
            truth_sink.write_table(truth)
            if start < _SCORED:
                scored.append((table["clicked"].to_numpy(), table["purchased"].to_numpy(), *map(np.asarray, truth)))
    clicked, purchased, click, purchase = (np.concatenate(column) for column in zip(*scored, strict=True))
    purchase_auc = best_auc(click * purchase, purchased)
    return (
        f"{output}: {rows:,} rows, {output.stat().st_size:,} bytes, {time.perf_counter() - started:.1f} s; "
        f"{clicked.mean():.1%} clicked, {purchased.mean():.1%} purchased; "
        f"best AUC {best_auc(click, clicked):.4f} and {purchase_auc:.4f}"
    )


def _compute_probability(log_odds: Floats) -> Floats:
    probability: Floats = np.round(1.0 / (1.0 + np.exp(-log_odds)), 6)
    return probability


def _normalize(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit


def make_item_ids(count: int) -> Ints:
    """Return the ids of the first `count` items, by index, int64, shape [count]."""
    return _make_ids(np.arange(count))


def _make_ids(ranks: Ints) -> Ints:
    """Multiply ranks by an odd number modulo 2^32, which is a bijection, so that ids do not reveal their rank."""
    return (ranks + 1) * 2_654_435_761 % 2**32


def _make_lists(values: Ints, known: npt.NDArray[np.bool_]) -> pa.ListArray:
    offsets = np.append(0, np.cumsum(known.sum(axis=1))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[known]))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.sessions", description="Simulate the sessions of a shop.")
    parser.add_argument("--rows", type=positive, default=102_400, help="number of impressions (default: 102400)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the log (default: 0)")
    parser.add_argument(
        "--click", type=float, default=CLICK, help=f"log-odds of a click without any effect ({CLICK}); -3: 6 %% click"
    )
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help=f"Parquet file to write ({DEFAULT_OUTPUT})")
    args = parser.parse_args(arguments)
    return finish(lambda: make(args.rows, args.seed, args.output, args.click))


if __name__ == "__main__":
    sys.exit(main())
