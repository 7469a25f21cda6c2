"""Warm start: weights of the latest blessed model for a new training, as far as both models mean the same by them.

A variable is taken over if its name and shape agree, and the model reads and answers what the other one did. A row of a
table belongs to an id, so tables go by ids: where a vocabulary has changed, the rows of values that both know move to
their new places, and the rows of new values begin as in any training.

What a SavedModel does not say, names and features, lies beside it in `assets.extra/warm_start.json`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.features import names
from components.features.plan import FeaturePlan
from components.models.inputs import inputs
from components.models.parts import Table

_FILE = "assets.extra/warm_start.json"
_KEY = "weights/{}/.ATTRIBUTES/VARIABLE_VALUE"
"""Where a variable is in the SavedModel that `export` writes, by its place in `network.variables`."""
_ANEW = -1


@dataclass(frozen=True)
class Meaning:
    """What the ids of one feature stand for.

    Attributes:
      op: the operation that makes them, with its options.
      count: how many there are.
      values: those of the vocabulary behind them, in the order of their ids; None if there is none.
    """

    op: Mapping[str, Any]
    count: int
    values: Sequence[bytes] | None


@dataclass(frozen=True)
class _Weight:
    """A variable of a network; whole, however a strategy has cut it.

    `features` are those whose ids have their rows in it, one after the other; () if they are not known, and None if it
    is no table of ids.
    """

    name: str
    variable: Any
    features: Sequence[str] | None


def describe(network: Any, plan: FeaturePlan, transform: tft.TFTransformOutput, path: str) -> None:
    """Writes beside an exported model what a warm start from it has to know.

    Args:
      network: the exported one, under no strategy.
      plan: its features and label.
      transform: its transform graph.
      path: the model's folder.
    """
    weights = _weights(network)
    called = {id(weight.variable): weight.name for weight in weights}
    told = {
        "variables": [called[id(variable)] for variable in network.variables],
        "tables": {weight.name: weight.features for weight in weights if weight.features is not None},
        "sense": _sense(network, plan, transform),
        "ids": {
            name: {"op": op, "count": count, "file": None if file is None else file.rpartition("/")[2]}
            for name, (op, count, file) in _ids(plan, transform).items()
        },
    }
    tf.io.gfile.makedirs(f"{path}/{_FILE}".rpartition("/")[0])
    with tf.io.gfile.GFile(f"{path}/{_FILE}", "w") as file:
        file.write(json.dumps(told, indent=1))


def take_over(network: Any, base: str | None, plan: FeaturePlan, transform: tft.TFTransformOutput) -> None:
    """Gives a new network the weights of an earlier model, and says in the log which, and why not the others.

    Args:
      network: new; made under the strategy whose scope this is called in.
      base: the folder of the earlier model; None if there is none yet.
      plan: the features and the label.
      transform: the transform graph.
    """
    if base is None or not tf.io.gfile.exists(f"{base}/{_FILE}"):
        why = "no model is blessed yet" if base is None else f"{base} does not say what its variables are"
        logging.warning("warm start: %s; training begins from scratch", why)
        return
    with tf.io.gfile.GFile(f"{base}/{_FILE}") as file:
        told = json.loads(file.read())
    earlier = _Earlier(base, told)
    same_sense = _sense(network, plan, transform) == told["sense"]
    mine = {name: Meaning(op, count, _values(file)) for name, (op, count, file) in _ids(plan, transform).items()}
    taken, weights = [], _weights(network)
    for weight in weights:
        why = _take(weight, earlier, mine, same_sense)
        if why:
            logging.warning("warm start: %s begins anew: %s", weight.name, why)
        else:
            taken.append(weight.name)
    told_taken = ", ".join(taken) or "none"
    logging.info("warm start from %s: %d of %d variables taken over: %s", base, len(taken), len(weights), told_taken)


class _Earlier:
    """The weights of an earlier model, by name, and what its ids stood for."""

    def __init__(self, base: str, told: Mapping[str, Any]) -> None:
        self._base = base
        self._reader = tf.train.load_checkpoint(f"{base}/variables/variables")
        self._keys = {name: _KEY.format(place) for place, name in enumerate(told["variables"])}
        self._ids: Mapping[str, Any] = told["ids"]
        self._meanings: dict[str, Meaning | None] = {}
        self.tables: Mapping[str, Sequence[str]] = told["tables"]

    def value(self, name: str) -> Any | None:
        """A variable's value, as an array; None if there is none of this name."""
        return self._reader.get_tensor(self._keys[name]) if name in self._keys else None

    def count(self, feature: str) -> int:
        """How many ids a feature had."""
        return int(self._ids[feature]["count"])

    def meaning(self, feature: str) -> Meaning | None:
        """What a feature's ids stood for; None if there was no such feature."""
        if feature not in self._ids:
            return None
        if feature not in self._meanings:
            told = self._ids[feature]
            file = None if told["file"] is None else f"{self._base}/assets/{told['file']}"
            self._meanings[feature] = Meaning(told["op"], told["count"], _values(file))
        return self._meanings[feature]


def _take(weight: _Weight, earlier: _Earlier, mine: Mapping[str, Meaning], same_sense: bool) -> str:
    """Takes a variable over; returns why not, or nothing."""
    value = earlier.value(weight.name)
    if value is None:
        return "the earlier model has none of this name"
    shape = tuple(weight.variable.shape)
    if weight.features and earlier.tables.get(weight.name):
        if value.shape[1:] != shape[1:]:
            return f"its rows have width {shape[1]}, and the earlier model's {value.shape[1]}"
        return _take_rows(weight, value, earlier, mine)
    if value.shape != shape:
        return f"its shape is {list(shape)}, and the earlier model's {list(value.shape)}"
    if not same_sense:
        return "the model reads other features, or answers something else, than the earlier one"
    if weight.features is not None and not all(
        _is_same(meaning, earlier.meaning(name)) for name, meaning in mine.items()
    ):
        return "ids have changed, and it is not known which of its rows they belong to"
    weight.variable.assign(value)
    return ""


def _take_rows(weight: _Weight, value: Any, earlier: _Earlier, mine: Mapping[str, Meaning]) -> str:
    starts, start = {}, 0
    for feature in earlier.tables[weight.name]:
        starts[feature] = start
        start += earlier.count(feature)
    found = []
    for feature in weight.features or ():
        theirs = earlier.meaning(feature) if feature in starts else None
        rows = places(mine[feature], theirs)
        found.append(np.where(rows == _ANEW, _ANEW, rows + starts.get(feature, 0)))
        kept = int(np.sum(rows != _ANEW))
        if kept < len(rows):
            logging.info("warm start: %s: %d of %d rows of %s taken over", weight.name, kept, len(rows), feature)
    rows = np.concatenate(found)
    if np.all(rows == _ANEW):
        return "none of its ids stands for what it stood for in the earlier model"
    anew = (rows == _ANEW)[:, np.newaxis]
    # What is new keeps what it was initialized with.
    values = np.where(anew, tf.convert_to_tensor(weight.variable).numpy(), value[rows]) if anew.any() else value[rows]
    weight.variable.assign(values)
    return ""


def places(mine: Meaning, theirs: Meaning | None) -> Any:
    """For every id of a feature, the id that stood for the same in the earlier model: int64 [count], -1 for none.

    Ids of buckets count as the same if the operation's options are: the third of ten is the third of ten, though its
    bounds follow the data.
    """
    found = np.full(mine.count, _ANEW, np.int64)
    if theirs is None or mine.op["op"] != theirs.op["op"]:
        return found
    if _is_same(mine, theirs):
        return np.arange(mine.count)
    if mine.values is None or theirs.values is None or mine.op["op"] != "vocab":
        return found
    # A missing value is 0, then come the vocabulary and the buckets of unknown values; see features.ops.
    place = {value: number for number, value in enumerate(theirs.values, 1)}
    known = len(mine.values)
    found[0] = 0
    found[1 : known + 1] = [place.get(value, _ANEW) for value in mine.values]
    unknown = theirs.count - len(theirs.values) - 1
    if unknown == mine.count - known - 1:
        found[known + 1 :] = np.arange(len(theirs.values) + 1, theirs.count)
    return found


def _is_same(mine: Meaning, theirs: Meaning | None) -> bool:
    if theirs is None or mine.count != theirs.count:
        return False
    if mine.values is not None or theirs.values is not None:
        return mine.op["op"] == theirs.op["op"] and mine.values == theirs.values
    return dict(mine.op) == dict(theirs.op)


def _sense(network: Any, plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, Any]:
    """What a network reads and answers: weights of another sense are worth nothing, though the shapes agree."""
    classes = transform.vocabulary_by_name(names.LABEL_CLASSES) if plan.task == "multiclass" else []
    return {
        "reads": sorted(tensor.name for tensor in network.inputs),
        "label": plan.label,
        "task": plan.task,
        "classes": [line.decode(errors="replace") for line in classes],
    }


def _ids(plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, tuple[dict[str, Any], int, str | None]]:
    """Feature → operation, number of ids, and the file of the vocabulary behind them, of those that are ids."""
    ops = {feature.name: feature.op.model_dump(mode="json") for feature in plan.features.declared}
    given = inputs(plan, transform.vocabulary_size_by_name).ids
    return {name: (ops[name], ids.cardinality, transform.vocabulary_file_by_name(name)) for name, ids in given.items()}


def _weights(network: Any) -> list[_Weight]:
    tables = [layer for layer in network.submodules if isinstance(layer, Table)]
    found = [_Weight(f"{layer.name}/rows", layer.rows, layer.features) for layer in tables]
    # Of a variable in shards, the network has the shards.
    seen = {id(each) for weight in found for each in (weight.variable, *getattr(weight.variable, "variables", ()))}
    embeddings = {id(layer.embeddings) for layer in network.submodules if isinstance(layer, tf_keras.layers.Embedding)}
    others = [variable for variable in network.variables if id(variable) not in seen]
    return [
        *found,
        *(_Weight(each.name.removesuffix(":0"), each, () if id(each) in embeddings else None) for each in others),
    ]


def _values(file: str | None) -> list[bytes] | None:
    """The values of a vocabulary, in the order of their ids; None if it is not there."""
    if file is None or not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file, "rb") as lines:
        values: list[bytes] = lines.read().split(b"\n")
    return values if values[-1] else values[:-1]
