"""Train a model of DeepCTR on a run's transformed rows, for benchmarks/deepctr.py; runs in the environment `deepctr`.

python -m benchmarks.deepctr_program KIND TRAIN EVAL STEPS BATCH OUTPUT

The ids and numbers, the widths of embeddings, the layers and the batches are the same as in this project's models. The
regularization, the activations, and Adam with its default rate for all weights are DeepCTR's. The predictions for the
eval split are written to OUTPUT, one column per label.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import pyarrow as pa
from pyarrow import parquet

HIDDEN, ATTENTION, WIDTH = (64, 32), (64, 16), 16
HISTORIES = {"past_items_sequence": "item_vocab", "past_categories_sequence": "category_vocab"}
"""History → column with which it shares embeddings."""
GAPS, NUMBER = "past_times_time_gaps", "price_log"
LABELS = ("click", "purchase")
IDS = ("user_hash", "item_vocab", "category_vocab", "position_vocab")
Rows: TypeAlias = dict[str, Any]
"""Column → its values, [rows] or [rows, values]."""


def main() -> None:
    """Train a model, and write its predictions."""
    from deepctr.models import DIN, ESMM, MMOE

    kind, train, evaluated, steps, batch, output = sys.argv[1:]
    rows, eval_rows = read(train), read(evaluated)
    columns = declare_columns((rows, eval_rows))
    deep: dict[str, Any] = {"seed": 0}
    if kind == "din":
        names = list(HISTORIES.values())
        model = DIN(columns, names, dnn_hidden_units=HIDDEN, att_hidden_size=ATTENTION, **deep)
        labels: Any = rows["label"].reshape(len(rows["label"]), -1)[:, 0]
    elif kind == "esmm":
        model = ESMM(columns, tower_dnn_hidden_units=HIDDEN, task_names=LABELS, **deep)
        labels = [rows["label"][:, 0], rows["label"][:, 1]]
    else:
        towers = {
            "expert_dnn_hidden_units": HIDDEN[:1],
            "tower_dnn_hidden_units": HIDDEN[1:],
            "gate_dnn_hidden_units": (),
        }
        model = MMOE(columns, num_experts=4, task_types=("binary",) * 2, task_names=LABELS, **towers, **deep)
        labels = [rows["label"][:, 0], rows["label"][:, 1]]
    model.compile("adam", "binary_crossentropy")
    epochs = max(1, round(int(steps) * int(batch) / len(rows["label"])))
    model.fit(make_inputs(rows), labels, batch_size=int(batch), epochs=epochs, verbose=0)
    predicted = model.predict(make_inputs(eval_rows), batch_size=4096, verbose=0)
    predicted = predicted if isinstance(predicted, list) else [predicted]
    table = {name: values[:, 0] for name, values in zip(LABELS, predicted, strict=False)}
    parquet.write_table(pa.table({**table, "label": eval_rows["label"].tolist()}), output)


def read(folder: str) -> Rows:
    """Return the rows of a split."""
    table = pa.concat_tables([parquet.read_table(file) for file in sorted(Path(folder).iterdir())])
    return {
        name: np.squeeze(table[name].combine_chunks().flatten().to_numpy().reshape(len(table), -1))
        for name in table.column_names
    }


def declare_columns(splits: Sequence[Rows]) -> list[Any]:
    """Declare DeepCTR's columns, for the ids of all splits."""
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat

    def sparse(name: str, owner: str) -> Any:
        users = [owner, *(history for history, history_owner in HISTORIES.items() if history_owner == owner)]
        most = max(int(rows[name].max()) for rows in splits for name in users)
        return SparseFeat(name, most + 1, WIDTH, embedding_name=owner)

    events = [(f"hist_{owner}", owner) for owner in HISTORIES.values()] + [(GAPS, GAPS)]
    most = splits[0][GAPS].shape[1]
    return [
        *(sparse(name, name) for name in IDS),
        *(VarLenSparseFeat(sparse(name, owner), most) for name, owner in events),
        DenseFeat(NUMBER, 1),
    ]


def make_inputs(rows: Rows) -> Rows:
    """Return the inputs of DeepCTR's models, where a history is named after its column."""
    model_inputs = {name: rows[name] for name in (*IDS, GAPS, NUMBER)}
    return model_inputs | {f"hist_{owner}": rows[name] for name, owner in HISTORIES.items()}


if __name__ == "__main__":
    main()
