"""Compare initial embeddings of new ids when a model is trained further on newer spans.

python -m benchmarks.new_ids [--rows 1_000_000] [--seeds 5] [--kind dcn_v2] [--passes 1]

Simulated clicks are divided into spans. An item has rows in three spans, and a third of the items in a span are new. A
model that is trained on three spans is blessed. A warm start trains it further on the next window of three spans, and
predicts the following span. `fresh` is trained on this window without a warm start, in one pass.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from benchmarks import measure
from benchmarks.sessions import with_error
from components.data.examples import to_lists
from components.predictor import model_interface
from components.trainer.config import NewIds
from data.clicks import Impressions, best_auc
from data.draws import uniform

_LIFE = 3
"""Number of spans in which an item has rows, and of a training window."""
_SPANS = _LIFE + 2
_BATCH = 512
_FRESH = "fresh"


def main() -> None:
    """Train, print the table and write it to results/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--kind", default="dcn_v2")
    parser.add_argument("--passes", type=float, default=1.0, help="passes of the warm start over its window")
    options = parser.parse_args()
    measured: dict[str, list[measure.Measurement]] = {side: [] for side in (*get_args(NewIds), _FRESH)}
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.seeds):
            folder = Path(scratch) / str(seed)
            folder.mkdir()
            results.append(areas(folder, seed, options, measured))
    chosen = [f"--{name} {value}" for name, value in vars(options).items()]
    command = " ".join(["python -m benchmarks.new_ids", *chosen])
    name = "new_ids" if options.passes == 1 else f"new_ids_passes{100 * options.passes:.0f}"
    print(measure.record(name, command, measured, facts(results, options.rows)))


def areas(
    folder: Path, seed: int, options: argparse.Namespace, measured: dict[str, list[measure.Measurement]]
) -> dict[str, dict[str, float]]:
    """Train all sides on a log; return group of rows → side → AUC in the last span (`best`: the true probability).

    Args:
      folder: Folder for data and outputs.
      seed: Seed of the log.
      options: Options of the command line.
      measured: Side → measurements of its runs. A measurement is appended for each side.
    """
    log = make_log(options.rows, seed)
    for number in range(2):
        window = folder / str(number)
        window.mkdir()
        inside = (log.span >= number) & (log.span < number + _LIFE)
        parquet.write_table(log.table.filter(pa.array(inside)), window / "train.parquet")
        parquet.write_table(log.table.filter(pa.array(log.span == number + _LIFE)), window / "eval.parquet")
    of_window = parquet.read_metadata(folder / "0" / "train.parquet").num_rows
    _run(folder, 0, options.kind, of_window, "Evaluator", {})
    last = log.span == _SPANS - 1
    evaluated = log.table.filter(pa.array(last))
    clicked, is_new = evaluated["clicked"].to_numpy(), log.born[last] == _LIFE
    scores = {"best": log.truth[last]}
    for side, runs in measured.items():
        fresh = side == _FRESH
        settings = {} if fresh else {"training.warm_start": "true", "training.new_ids": side}
        trained = of_window if fresh else round(options.passes * of_window)
        runs.append(_run(folder, 1, options.kind, trained, "Trainer", settings))
        scores[side] = _predict(folder, evaluated)
    rows_of = {"all rows": np.full(len(clicked), True), "rows of the new items": is_new}
    return {
        group: {side: best_auc(values[chosen], clicked[chosen]) for side, values in scores.items()}
        for group, chosen in rows_of.items()
    }


class Log(NamedTuple):
    """The rows of all spans.

    Attributes:
      table: Columns as in data.clicks.
      truth: True probabilities, [rows].
      born: First span of the row's item, [rows]. Negative if the item is older than the log.
      span: Span of the row, [rows].
    """

    table: pa.Table
    truth: npt.NDArray[np.float64]
    born: npt.NDArray[np.int64]
    span: npt.NDArray[np.int64]


def make_log(rows: int, seed: int) -> Log:
    """Divide a simulated log into spans, without the rows before the first span and after the last span."""
    log = Impressions(rows, seed)
    table, truth = log.make_rows_and_truth(0, rows)
    item = log.draw(0, rows).chosen["item"].astype(np.uint64)
    born = np.floor(uniform(seed, "born", item) * (_SPANS + _LIFE - 1)).astype(np.int64) - (_LIFE - 1)
    span = born + np.floor(uniform(seed, "span", np.arange(rows, dtype=np.uint64)) * _LIFE).astype(np.int64)
    seen = (span >= 0) & (span < _SPANS)
    return Log(table.filter(pa.array(seen)), truth["probability"].to_numpy()[seen], born[seen], span[seen])


def _run(folder: Path, window: int, kind: str, rows: int, last: str, own: dict[str, str]) -> measure.Measurement:
    """Train a model on a window; later runs on the window reuse the nodes before the Trainer."""
    fields = {
        "data.path": folder / str(window),
        "data.split": "{by: files, train: train.parquet, eval: eval.parquet}",
        "features.columns.item": "{vocab: {size: 1000000, min_frequency: 3, oov_buckets: 100}}",
        "model.kind": kind,
        "model.embedding": 16,
        "training.strategy": "{kind: none}",
        "training.steps": rows // _BATCH,
        "training.batch_size": _BATCH,
        "training.learning_rate": 0.003,
        "evaluation.slices": "[]",
        "evaluation.importance_rows": 0,
        "evaluation.thresholds": "{auc: {min: 0}}",
        **own,
    }
    chosen = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    arguments = ["--local", "--config", "configs/clicks.yaml", "--output", str(folder / "out"), *chosen, "--to", last]
    return measure.run([sys.executable, "runner.py", *arguments], folder / "log")


def _predict(folder: Path, rows: pa.Table) -> npt.NDArray[np.floating]:
    """Return the probabilities of the newest model for some rows, [rows]."""
    models = folder.glob("out/clicks/artifacts/Trainer/model/*/Format-Serving")
    reads = model_interface.read(str(max(models, key=lambda path: int(path.parent.name))))
    batches = rows.combine_chunks().to_batches(max_chunksize=4096)
    return np.concatenate([reads.predict(to_lists(batch))["probability"][:, 0] for batch in batches])


def facts(found: list[dict[str, dict[str, float]]], rows: int) -> measure.Facts:
    """Return means over the seeds, and differences from the side `mean`, with standard errors."""
    reported: measure.Facts = {"rows": rows, "seeds": len(found)}
    for group in found[0]:
        for side in found[0][group]:
            reported[f"{group}: AUC of {side}"] = with_error([result[group][side] for result in found])
            if side not in ("best", "mean"):
                difference = [result[group]["mean"] - result[group][side] for result in found]
                reported[f"{group}: mean above {side}"] = with_error(difference)
    return reported


if __name__ == "__main__":
    main()
