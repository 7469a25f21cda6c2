"""Warm start: initial weights of a new training, copied from the latest blessed model.

A variable is copied if both models have one of its name and shape, and have the same inputs and outputs. A row of a
table belongs to an id, so tables are copied by id: if a vocabulary has changed, the rows of values in both vocabularies
move to their new ids. The rows of new values begin as `training.new_ids` says, and those of values that are not in the
new vocabulary are left out. The rows of composed vectors belong to several ids, so they are copied if all ids are the
same.

Names and features are not part of a SavedModel, so they are written to `assets.extra/warm_start.json` in its folder.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.features import feature_names
from components.features.plan import FeaturePlan
from components.models.inputs import inputs
from components.models.layers import Table
from components.trainer.config import NewIds

_FILE = "assets.extra/warm_start.json"
_KEY = "weights/{}/.ATTRIBUTES/VARIABLE_VALUE"
"""The checkpoint key of a variable in the SavedModel that `export` writes, by its position in `network.variables`."""
_NEW = -1
_OF_TABLES = ("embedding", "quotient_remainder", "composition")
"""Options of an operation that do not change the meaning of its ids."""


@dataclass(frozen=True)
class IdVocabulary:
    """What the ids of one feature mean.

    Attributes:
      op: the operation that computes them, with its options.
      count: number of ids.
      values: the entries of the vocabulary, in the order of their ids; None for an operation without one.
    """

    op: Mapping[str, Any]
    count: int
    values: Sequence[bytes] | None


@dataclass(frozen=True)
class _Weight:
    """A variable of a network, including all of its shards.

    Attributes:
      name: that of its layer and of the variable.
      variable: to assign a value to.
      features: the features whose ids have their rows in it, one after the other; () if they are not known, and None if
        it is no table of ids.
      rows: the number of rows of each of these features.
    """

    name: str
    variable: tf.Variable
    features: Sequence[str] | None
    rows: Sequence[int] = ()


def describe(
    network: tf_keras.Model,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    path: str,
    exclude_seen: str | None = None,
) -> None:
    """Write the description that a warm start from this model reads.

    Args:
      network: the exported one, under no strategy.
      plan: its features and label.
      transform: its transform graph.
      path: the model's folder.
      exclude_seen: feature of the user by which a retrieval leaves items out; None: it leaves none out.
    """
    weights = _weights(network)
    name_of = {id(weight.variable): weight.name for weight in weights}
    description = {
        "variables": [name_of[id(variable)] for variable in network.variables],
        "tables": {weight.name: weight.features for weight in weights if weight.features is not None},
        "rows": {weight.name: weight.rows for weight in weights if weight.rows},
        "sense": _model_interface(network, plan, transform),
        "exclude_seen": exclude_seen,
        "ids": {
            name: {"op": op, "count": count, "file": None if file is None else file.rpartition("/")[2]}
            for name, (op, count, file) in _ids(plan, transform).items()
        },
    }
    tf.io.gfile.makedirs(f"{path}/{_FILE}".rpartition("/")[0])
    with tf.io.gfile.GFile(f"{path}/{_FILE}", "w") as file:
        file.write(json.dumps(description, indent=1))


def initialize(
    network: tf_keras.Model,
    base: str | None,
    plan: FeaturePlan,
    transform: tft.TFTransformOutput,
    new_ids: NewIds = "random",
) -> None:
    """Copy the weights of an earlier model into a new network, and log which, and why not the others.

    Args:
      network: new; made under the strategy whose scope this is called in.
      base: the folder of the earlier model; None if there is none yet.
      plan: the features and the label.
      transform: the transform graph.
      new_ids: what the rows of ids begin with that the earlier model does not have.
    """
    if base is None or not tf.io.gfile.exists(f"{base}/{_FILE}"):
        reason = "no model is blessed yet" if base is None else f"{base} has no {_FILE}"
        logging.warning("warm start: %s; training begins from scratch", reason)
        return
    with tf.io.gfile.GFile(f"{base}/{_FILE}") as file:
        description = json.loads(file.read())
    earlier = _EarlierModel(base, description)
    same_interface = _model_interface(network, plan, transform) == description["sense"]
    vocabularies = {
        name: IdVocabulary(op, count, _entries(file)) for name, (op, count, file) in _ids(plan, transform).items()
    }
    copied, weights = [], _weights(network)
    for weight in weights:
        reason = _copy(weight, earlier, vocabularies, same_interface, new_ids)
        if reason:
            logging.warning("warm start: %s is not copied: %s", weight.name, reason)
        else:
            copied.append(weight.name)
    logging.info(
        "warm start from %s: %d of %d variables copied: %s",
        base,
        len(copied),
        len(weights),
        ", ".join(copied) or "none",
    )


def restore(network: tf_keras.Model, path: str) -> None:
    """Assign the weights of an exported model to a network that was built as it.

    Args:
      network: without weights of its own.
      path: the model's folder.
    """
    reader = tf.train.load_checkpoint(f"{path}/variables/variables")
    for position, variable in enumerate(network.variables):
        variable.assign(reader.get_tensor(_KEY.format(position)))


class _EarlierModel:
    """The weights of an earlier model, by name, and the meaning of its ids.

    Args:
      base: the model's folder.
      description: what `describe` has written.
    """

    def __init__(self, base: str, description: Mapping[str, Any]) -> None:
        self._base = base
        self._reader = tf.train.load_checkpoint(f"{base}/variables/variables")
        self._keys = {name: _KEY.format(position) for position, name in enumerate(description["variables"])}
        self._ids: Mapping[str, Any] = description["ids"]
        self._vocabularies: dict[str, IdVocabulary | None] = {}
        self.tables: Mapping[str, Sequence[str]] = description["tables"]
        self._rows: Mapping[str, Sequence[int]] = description["rows"]

    def value(self, name: str) -> npt.NDArray[Any] | None:
        """Return the value of a variable; None if there is none of this name."""
        return self._reader.get_tensor(self._keys[name]) if name in self._keys else None

    def ranges(self, table: str) -> dict[str, range]:
        """Return the rows of each feature in a table."""
        counts = self._rows[table]
        ends = itertools.accumulate(counts)
        return {
            name: range(end - count, end) for name, count, end in zip(self.tables[table], counts, ends, strict=True)
        }

    def vocabulary(self, feature: str) -> IdVocabulary | None:
        """Return the meaning of a feature's ids; None if there was no such feature."""
        if feature not in self._ids:
            return None
        if feature not in self._vocabularies:
            ids = self._ids[feature]
            file = None if ids["file"] is None else f"{self._base}/assets/{ids['file']}"
            self._vocabularies[feature] = IdVocabulary(ids["op"], ids["count"], _entries(file))
        return self._vocabularies[feature]


def _copy(
    weight: _Weight,
    earlier: _EarlierModel,
    vocabularies: Mapping[str, IdVocabulary],
    same_interface: bool,
    new_ids: NewIds,
) -> str:
    """Copy a variable; return the reason if it cannot, otherwise an empty string."""
    value = earlier.value(weight.name)
    if value is None:
        return "the earlier model has none of this name"
    shape = tuple(weight.variable.shape)
    if weight.features and earlier.tables.get(weight.name):
        if value.shape[1:] != shape[1:]:
            return f"its rows have width {shape[1]}, and the earlier model's {value.shape[1]}"
        return _copy_rows(weight, value, earlier, vocabularies, new_ids)
    if value.shape != shape:
        return f"its shape is {list(shape)}, and the earlier model's {list(value.shape)}"
    if not same_interface:
        return "the earlier model has other features, another label or another task"
    if weight.features is not None and not all(
        _is_same(vocabulary, earlier.vocabulary(name)) for name, vocabulary in vocabularies.items()
    ):
        return "ids have changed, and it is not known which of its rows they belong to"
    weight.variable.assign(value)
    return ""


def _copy_rows(
    weight: _Weight,
    value: npt.NDArray[Any],
    earlier: _EarlierModel,
    vocabularies: Mapping[str, IdVocabulary],
    new_ids: NewIds,
) -> str:
    """Copy the rows of a table, shape [rows, width], by their ids; return the reason if it copies none."""
    ranges, parts = earlier.ranges(weight.name), []
    for feature, count in zip(weight.features or (), weight.rows, strict=True):
        before = earlier.vocabulary(feature) if feature in ranges else None
        found = ranges.get(feature, range(0))
        ids = _earlier_rows(vocabularies[feature], before, count, len(found))
        parts.append(np.where(ids == _NEW, _NEW, ids + found.start))
    rows = np.concatenate(parts)
    if np.all(rows == _NEW):
        return "none of its ids has the same meaning in the earlier model"
    is_new = rows == _NEW
    copied: npt.NDArray[Any] = value[rows]
    if is_new.any():
        initial = tf.convert_to_tensor(weight.variable).numpy()
        copied[is_new] = initial[is_new]
    start = 0
    for feature, count in zip(weight.features or (), weight.rows, strict=True):
        of_feature = slice(start, start + count)
        start += count
        matches = count - int(is_new[of_feature].sum())
        if not 0 < matches < count:
            continue
        logging.info("warm start: %s: %d of %d rows of %s copied", weight.name, matches, count, feature)
        before = earlier.vocabulary(feature)
        if before is not None and new_ids != "random":
            _begin_new_rows(
                copied[of_feature],
                is_new[of_feature],
                vocabularies[feature],
                before,
                value[ranges[feature].start :],
                new_ids,
            )
    weight.variable.assign(copied)
    return ""


def _earlier_rows(
    new: IdVocabulary, earlier: IdVocabulary | None, rows: int, earlier_rows: int
) -> npt.NDArray[np.int64]:
    """Map the rows of a feature to those of an earlier model, -1 for a new one: int64 [rows]; see `earlier_ids`."""
    composed = new.op.get("quotient_remainder")
    before = earlier.op.get("quotient_remainder") if earlier else None
    if not composed and not before:
        return earlier_ids(new, earlier)
    same_division = (composed, rows) == (before, earlier_rows)
    same = earlier is not None and _is_same(new, earlier) and same_division and _sums(new) == _sums(earlier)
    return np.arange(rows) if same else np.full(rows, _NEW, np.int64)


def _sums(ids: IdVocabulary) -> bool:
    """Whether composed vectors are sums."""
    return ids.op.get("composition") == "sum"


def _begin_new_rows(
    rows: npt.NDArray[Any],
    is_new: npt.NDArray[np.bool_],
    new: IdVocabulary,
    earlier: IdVocabulary,
    value: npt.NDArray[Any],
    new_ids: NewIds,
) -> None:
    """Assign the rows of the entries of a vocabulary that the earlier one does not have.

    Args:
      rows: of all ids, [ids, width].
      is_new: which of them are new, [ids].
      new: their meaning.
      earlier: the meaning of the earlier model's ids.
      value: the earlier model's rows of these.
      new_ids: mean: the mean of the rows of entries that both have; unknown: the row that the value had as one
        outside the vocabulary.
    """
    if new.values is None or earlier.values is None:
        return
    entries = np.arange(1, len(new.values) + 1)
    added = entries[is_new[entries]]
    if new_ids == "mean":
        kept = entries[~is_new[entries]]
        if len(kept):
            rows[added] = rows[kept].mean(axis=0)
        return
    oov_buckets = earlier.count - len(earlier.values) - 1
    buckets = tf.strings.to_hash_bucket_fast([new.values[entry - 1] for entry in added], oov_buckets).numpy()
    rows[added] = value[len(earlier.values) + 1 + buckets]


def earlier_ids(new: IdVocabulary, earlier: IdVocabulary | None) -> npt.NDArray[np.int64]:
    """Map the ids of a feature to the ids with the same meaning in an earlier model.

    Ids of buckets have the same meaning if the operation has the same options: the third of ten buckets stays the third
    of ten, though its boundaries depend on the data.

    Args:
      new: the ids of the feature.
      earlier: its ids in the earlier model; None if that has no such feature.

    Returns:
      int64 [new.count], -1 for an id without an earlier one.
    """
    ids = np.full(new.count, _NEW, np.int64)
    if earlier is None or new.op["op"] != earlier.op["op"]:
        return ids
    if _is_same(new, earlier):
        return np.arange(new.count)
    if new.values is None or earlier.values is None or new.op.get("buckets") != earlier.op.get("buckets"):
        return ids
    # Id 0 is a missing value or padding; the vocabulary follows, then the buckets of out-of-vocabulary values; see
    # features.transforms.ids.
    earlier_id = {value: number for number, value in enumerate(earlier.values, 1)}
    entries = len(new.values)
    ids[0] = 0
    ids[1 : entries + 1] = [earlier_id.get(value, _NEW) for value in new.values]
    oov_buckets = earlier.count - len(earlier.values) - 1
    if oov_buckets == new.count - entries - 1:
        ids[entries + 1 :] = np.arange(len(earlier.values) + 1, earlier.count)
    return ids


def _is_same(new: IdVocabulary, earlier: IdVocabulary | None) -> bool:
    if earlier is None or new.count != earlier.count:
        return False
    if new.values is not None or earlier.values is not None:
        same = new.op["op"] == earlier.op["op"] and new.op.get("buckets") == earlier.op.get("buckets")
        return same and new.values == earlier.values
    return _options_of_ids(new) == _options_of_ids(earlier)


def _options_of_ids(vocabulary: IdVocabulary) -> dict[str, Any]:
    return {name: value for name, value in vocabulary.op.items() if name not in _OF_TABLES}


def _model_interface(network: tf_keras.Model, plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, Any]:
    """Return the inputs and outputs of a network; weights are not copied between models in which these differ."""
    classes = transform.vocabulary_by_name(feature_names.LABEL_CLASSES) if plan.task == "multiclass" else []
    return {
        "reads": sorted(tensor.name for tensor in network.inputs),
        "label": plan.labels or plan.label,
        "task": plan.task,
        "classes": [line.decode(errors="replace") for line in classes],
    }


def _ids(plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, tuple[dict[str, Any], int, str | None]]:
    """Each feature of ids → its operation, number of ids, and vocabulary file."""
    features = {feature.name: feature for feature in plan.features.declared}
    return {
        name: (
            features[name].op.model_dump(mode="json"),
            ids.cardinality,
            transform.vocabulary_file_by_name(features[name].vocabulary),
        )
        for name, ids in inputs(plan, transform.vocabulary_size_by_name).ids.items()
    }


def _weights(network: tf_keras.Model) -> list[_Weight]:
    # The networks of a cross-validation, whose variables have the same names.
    nested = [layer for layer in network.layers if isinstance(layer, tf_keras.Model)]
    of_nested = [replace(each, name=f"{one.name}/{each.name}") for one in nested for each in _weights(one)]
    inside = {id(module) for one in nested for module in one.submodules}
    layers = [layer for layer in network.submodules if isinstance(layer, Table) and id(layer) not in inside]
    tables = [
        _Weight(f"{layer.name}/rows", layer.rows, layer.features, [each.rows for each in layer.divided])
        for layer in layers
    ]
    tables += [
        _Weight(
            f"{layer.name}/quotients",
            layer.quotients,
            layer.composed,
            [each.parts for each in layer.divided if each.parts],
        )
        for layer in layers
        if layer.quotients is not None
    ]
    # The variables of the network contain the shards of a sharded table, not the table.
    listed = {id(variable) for one in nested for variable in one.variables}
    listed |= {id(each) for table in tables for each in (table.variable, *getattr(table.variable, "variables", ()))}
    embeddings = {id(layer.embeddings) for layer in network.submodules if isinstance(layer, tf_keras.layers.Embedding)}
    others = [variable for variable in network.variables if id(variable) not in listed]
    return [
        *of_nested,
        *tables,
        *(_Weight(each.name.removesuffix(":0"), each, () if id(each) in embeddings else None) for each in others),
    ]


def _entries(file: str | None) -> list[bytes] | None:
    """Return the entries of a vocabulary file, in the order of their ids; None if there is no file."""
    if file is None or not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file, "rb") as lines:
        entries: list[bytes] = lines.read().split(b"\n")
    return entries if entries[-1] else entries[:-1]
