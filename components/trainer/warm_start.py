"""Warm start: initial weights of a new training, copied from the latest blessed model.

A variable is copied if both models have the same inputs and outputs, and a variable with its name and shape. A row of a
table belongs to an ID, so tables are copied by ID: if a vocabulary has changed, the rows of values in both vocabularies
move to their new IDs. `training.new_ids` selects the initial rows of new values. Rows of values that are not in the new
vocabulary are dropped. The rows of composed vectors belong to several IDs, so they are copied only if no ID changed.

A SavedModel does not contain names and features, so they are written to `assets.extra/warm_start.json` in its folder.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_transform as tft
import tf_keras

from components.features import feature_names
from components.features.plan import FeaturePlan
from components.models import keras3
from components.models.inputs import inputs
from components.models.layers import Table
from components.trainer.config import NewIds

_FILE = "assets.extra/warm_start.json"
_KEY = "weights/{}/.ATTRIBUTES/VARIABLE_VALUE"
"""The checkpoint key of a variable in the SavedModel that `export` writes, by its position in `network.variables`."""
_NEW = -1
_OF_TABLES = ("embedding", "quotient_remainder", "composition", "vectors")
"""Options of an operation that do not change the meaning of its IDs."""


@dataclass(frozen=True)
class IdVocabulary:
    """The meaning of a feature's IDs.

    Attributes:
      op: The operation that computes the IDs, with its options.
      count: Number of IDs.
      values: Entries of the vocabulary, in the order of their IDs; None for an operation without a vocabulary.
    """

    op: Mapping[str, Any]
    count: int
    values: Sequence[bytes] | None


@dataclass(frozen=True)
class Weight:
    """A variable of a network, including all of its shards.

    Attributes:
      name: Name of the layer, then of the variable, for example `dense/kernel`.
      variable: The variable.
      features: The features whose IDs have rows in the table, one feature after another; () if they are not known, and
        None if the variable is not a table of IDs.
      rows: Number of rows per feature.
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
      network: The exported network, under no strategy.
      plan: Features and label of the network.
      transform: The transform graph.
      path: Folder of the model.
      exclude_seen: Feature with the user's ID, if a retrieval leaves out the user's items; otherwise None.
    """
    weights = list_weights(network)
    name_of = {id(weight.variable): weight.name for weight in weights}
    description = {
        "variables": [name_of[id(variable)] for variable in network.variables],
        "tables": {weight.name: weight.features for weight in weights if weight.features is not None},
        "rows": {weight.name: weight.rows for weight in weights if weight.rows},
        "sense": _describe_interface(network, plan, transform),
        "exclude_seen": exclude_seen,
        "ids": {
            name: {"op": op, "count": count, "file": None if file is None else file.rpartition("/")[2]}
            for name, (op, count, file) in _describe_ids(plan, transform).items()
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
    """Copy the weights of an earlier model into a new network; log the copied weights, and why others are not copied.

    Args:
      network: A new network, created under the strategy whose scope this is called in.
      base: Folder of the earlier model; None if no model is blessed yet.
      plan: The features and the label.
      transform: The transform graph.
      new_ids: Initial rows of IDs that the earlier model lacks.
    """
    if base is None or not tf.io.gfile.exists(f"{base}/{_FILE}"):
        reason = "no model is blessed yet" if base is None else f"{base} has no {_FILE}"
        logging.warning("warm start: %s; training begins from scratch", reason)
        return
    with tf.io.gfile.GFile(f"{base}/{_FILE}") as file:
        description = json.loads(file.read())
    earlier = _EarlierModel(base, description)
    same_interface = _describe_interface(network, plan, transform) == description["sense"]
    vocabularies = read_vocabularies(plan, transform)
    copied, weights = [], list_weights(network)
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


def read_vocabularies(plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, IdVocabulary]:
    """Return feature → the meaning of its IDs."""
    return {
        name: IdVocabulary(op, count, _read_entries(file, op))
        for name, (op, count, file) in _describe_ids(plan, transform).items()
    }


def list_tables(network: tf_keras.Model) -> Iterator[tuple[str, str, npt.NDArray[Any]]]:
    """Yield the name of a table of IDs, a feature, and the feature's rows in the table, float32 [rows, width]."""
    for weight in list_weights(network):
        if weight.rows:
            ends = list(itertools.accumulate(weight.rows))
            parts = np.split(tf.convert_to_tensor(weight.variable).numpy(), ends[:-1])
            for feature, part in zip(weight.features or (), parts, strict=True):
                yield weight.name, feature, part


def restore(network: tf_keras.Model, path: str) -> None:
    """Assign the weights of an exported model to a network of the same structure.

    Args:
      network: The network.
      path: Folder of the model.
    """
    reader = tf.train.load_checkpoint(f"{path}/variables/variables")
    for position, variable in enumerate(network.variables):
        variable.assign(reader.get_tensor(_KEY.format(position)))


class _EarlierModel:
    """The weights of an earlier model by name, and the meaning of its IDs.

    Args:
      base: Folder of the model.
      description: The description that `describe` has written.
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
        """Return the value of a variable; None if the model does not have a variable of this name."""
        return self._reader.get_tensor(self._keys[name]) if name in self._keys else None

    def ranges(self, table: str) -> dict[str, range]:
        """Return feature → its rows in a table."""
        counts = self._rows[table]
        ends = itertools.accumulate(counts)
        return {
            name: range(end - count, end) for name, count, end in zip(self.tables[table], counts, ends, strict=True)
        }

    def vocabulary(self, feature: str) -> IdVocabulary | None:
        """Return the meaning of a feature's IDs; None if the model does not have this feature."""
        if feature not in self._ids:
            return None
        if feature not in self._vocabularies:
            ids = self._ids[feature]
            file = None if ids["file"] is None else f"{self._base}/assets/{ids['file']}"
            self._vocabularies[feature] = IdVocabulary(ids["op"], ids["count"], _read_entries(file, ids["op"]))
        return self._vocabularies[feature]


def _copy(
    weight: Weight,
    earlier: _EarlierModel,
    vocabularies: Mapping[str, IdVocabulary],
    same_interface: bool,
    new_ids: NewIds,
) -> str:
    """Copy a variable; return the reason if it cannot, otherwise an empty string."""
    value = earlier.value(weight.name)
    if value is None:
        return "the earlier model does not have a variable of this name"
    shape = tuple(weight.variable.shape)
    if weight.features and earlier.tables.get(weight.name):
        if value.shape[1:] != shape[1:]:
            return f"its rows have width {shape[1]}, but {value.shape[1]} in the earlier model"
        return _copy_rows(weight, value, earlier, vocabularies, new_ids)
    if value.shape != shape:
        return f"its shape is {list(shape)}, but {list(value.shape)} in the earlier model"
    if not same_interface:
        return "the earlier model has other features, another label or another task"
    if weight.features is not None and not all(
        _is_same(vocabulary, earlier.vocabulary(name)) for name, vocabulary in vocabularies.items()
    ):
        return "IDs have changed, and it is not known which rows belong to them"
    weight.variable.assign(value)
    return ""


def _copy_rows(
    weight: Weight,
    value: npt.NDArray[Any],
    earlier: _EarlierModel,
    vocabularies: Mapping[str, IdVocabulary],
    new_ids: NewIds,
) -> str:
    """Copy the rows of a table, shape [rows, width], by ID; return the reason if no row can be copied."""
    ranges, parts = earlier.ranges(weight.name), []
    for feature, count in zip(weight.features or (), weight.rows, strict=True):
        before = earlier.vocabulary(feature) if feature in ranges else None
        old_range = ranges.get(feature, range(0))
        ids = _map_rows(vocabularies[feature], before, count, len(old_range))
        parts.append(np.where(ids == _NEW, _NEW, ids + old_range.start))
    rows = np.concatenate(parts)
    if np.all(rows == _NEW):
        return "none of its IDs has the same meaning in the earlier model"
    is_new = rows == _NEW
    copied: npt.NDArray[Any] = value[rows]
    if is_new.any():
        initial = tf.convert_to_tensor(weight.variable).numpy()
        copied[is_new] = initial[is_new]
    start = 0
    for feature, count in zip(weight.features or (), weight.rows, strict=True):
        feature_rows = slice(start, start + count)
        start += count
        matches = count - int(is_new[feature_rows].sum())
        if not 0 < matches < count:
            continue
        logging.info("warm start: %s: %d of %d rows of %s copied", weight.name, matches, count, feature)
        before = earlier.vocabulary(feature)
        if before is not None and new_ids != "random":
            _initialize_new_rows(
                copied[feature_rows],
                is_new[feature_rows],
                vocabularies[feature],
                before,
                value[ranges[feature].start :],
                new_ids,
            )
    weight.variable.assign(copied)
    return ""


def _map_rows(new: IdVocabulary, earlier: IdVocabulary | None, rows: int, earlier_rows: int) -> npt.NDArray[np.int64]:
    """Map the rows of a feature to rows of an earlier model, -1 for a new row; int64 [rows]. See `map_ids`."""
    composed = new.op.get("quotient_remainder")
    before = earlier.op.get("quotient_remainder") if earlier else None
    if not composed and not before:
        return map_ids(new, earlier)
    same_division = (composed, rows) == (before, earlier_rows)
    same = earlier is not None and _is_same(new, earlier) and same_division and _is_sum(new) == _is_sum(earlier)
    return np.arange(rows) if same else np.full(rows, _NEW, np.int64)


def _is_sum(ids: IdVocabulary) -> bool:
    """Whether composed vectors are sums."""
    return ids.op.get("composition") == "sum"


def _initialize_new_rows(
    rows: npt.NDArray[Any],
    is_new: npt.NDArray[np.bool_],
    new: IdVocabulary,
    earlier: IdVocabulary,
    value: npt.NDArray[Any],
    new_ids: NewIds,
) -> None:
    """Initialize the rows of vocabulary entries that the earlier vocabulary lacks.

    Args:
      rows: Rows of all IDs, [ids, width].
      is_new: Which IDs are new, [ids].
      new: Meaning of the IDs.
      earlier: Meaning of the earlier model's IDs.
      value: Rows of the earlier model.
      new_ids: `mean`: the mean row of the entries that both vocabularies contain; `unknown`: the row that the value had
        while it was not in the vocabulary.
    """
    if new.values is None or earlier.values is None:
        return
    entries = np.arange(1, len(new.values) + 1)
    added = entries[is_new[entries]]
    if new_ids == "mean":
        common = entries[~is_new[entries]]
        if len(common):
            rows[added] = rows[common].mean(axis=0)
        return
    oov_buckets = earlier.count - len(earlier.values) - 1
    if not oov_buckets:
        # Words with weights do not have an ID while they are not in the vocabulary.
        return
    buckets = tf.strings.to_hash_bucket_fast([new.values[entry - 1] for entry in added], oov_buckets).numpy()
    rows[added] = value[len(earlier.values) + 1 + buckets]


def map_ids(new: IdVocabulary, earlier: IdVocabulary | None) -> npt.NDArray[np.int64]:
    """Map the IDs of a feature to the IDs with the same meaning in an earlier model.

    IDs of buckets have the same meaning if the operation has the same options: the third of ten buckets stays the third
    of ten, although its boundaries depend on the data.

    Args:
      new: The IDs of the feature.
      earlier: IDs of the feature in the earlier model; None if the model does not have the feature.

    Returns:
      int64 [new.count], -1 for a new ID.
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
        same = new.op["op"] == earlier.op["op"] and new.values == earlier.values
        return same and all(new.op.get(name) == earlier.op.get(name) for name in ("buckets", "weighting"))
    return _select_id_options(new) == _select_id_options(earlier)


def _select_id_options(vocabulary: IdVocabulary) -> dict[str, Any]:
    # A model of an earlier release lacks the options that were added later, which are None by default.
    return {name: value for name, value in vocabulary.op.items() if name not in _OF_TABLES and value is not None}


def _describe_interface(network: tf_keras.Model, plan: FeaturePlan, transform: tft.TFTransformOutput) -> dict[str, Any]:
    """Return the inputs and outputs of a network; weights are copied only between models in which they agree."""
    has_classes = plan.task in ("multiclass", "multilabel")
    classes = transform.vocabulary_by_name(feature_names.LABEL_CLASSES) if has_classes else []
    return {
        "reads": sorted(tensor.name for tensor in network.inputs),
        "labels": [[label.name, label.text] for label in plan.labels],
        "task": plan.task,
        "classes": [line.decode(errors="replace") for line in classes],
    }


def _describe_ids(
    plan: FeaturePlan, transform: tft.TFTransformOutput
) -> dict[str, tuple[dict[str, Any], int, str | None]]:
    """Return feature of IDs → its operation, number of IDs, and vocabulary file."""
    features = {feature.name: feature for feature in plan.features.declared}
    return {
        name: (
            features[name].op.model_dump(mode="json"),
            ids.cardinality,
            transform.vocabulary_file_by_name(features[name].vocabulary),
        )
        for name, ids in inputs(plan, transform.vocabulary_size_by_name).ids.items()
    }


def list_weights(network: tf_keras.Model) -> list[Weight]:
    """Return the variables of a network, and the features whose IDs have rows in its tables."""
    # The variables of the networks of a cross-validation have the same names, so prefix them.
    nested = [layer for layer in network.layers if isinstance(layer, tf_keras.Model)]
    nested_weights = [
        replace(weight, name=f"{model.name}/{weight.name}") for model in nested for weight in list_weights(model)
    ]
    inside = {id(module) for model in nested for module in model.submodules}
    layers = [layer for layer in network.submodules if isinstance(layer, Table) and id(layer) not in inside]
    tables = [
        Weight(f"{layer.name}/rows", layer.rows, layer.features, [part.rows for part in layer.divided])
        for layer in layers
    ]
    tables += [
        Weight(
            f"{layer.name}/quotients",
            layer.quotients,
            layer.composed,
            [part.parts for part in layer.divided if part.parts],
        )
        for layer in layers
        if layer.quotients is not None
    ]
    # The variables of the network contain the shards of a sharded table, not the table.
    listed = {id(variable) for model in nested for variable in model.variables}
    listed |= {
        id(variable) for table in tables for variable in (table.variable, *getattr(table.variable, "variables", ()))
    }
    embeddings = {id(layer.embeddings) for layer in network.submodules if isinstance(layer, tf_keras.layers.Embedding)}
    embeddings |= {id(table) for layer in keras3.find_layers(network) for table in layer.embeddings}
    remaining = [variable for variable in network.variables if id(variable) not in listed]
    return [
        *nested_weights,
        *tables,
        *(
            Weight(name, variable, () if id(variable) in embeddings else None)
            for name, variable in zip(_number_names(remaining), remaining, strict=True)
        ),
    ]


def _number_names(variables: Sequence[tf.Variable]) -> Iterator[str]:
    """Yield a unique name for each variable, because layers inside a user's layer may give their variables one name."""
    counts = Counter[str]()
    for variable in variables:
        name = variable.name.removesuffix(":0")
        counts[name] += 1
        yield name if counts[name] == 1 else f"{name} ({counts[name]})"


def _read_entries(file: str | None, op: Mapping[str, Any]) -> list[bytes] | None:
    """Return the entries of an operation's vocabulary file, in the order of their IDs; None if it does not exist."""
    if file is None or not tf.io.gfile.exists(file):
        return None
    with tf.io.gfile.GFile(file, "rb") as lines:
        entries: list[bytes] = lines.read().split(b"\n")
    entries = entries if entries[-1] else entries[:-1]
    # See `analysis.InverseFrequencies`.
    return [entry.partition(b"\t")[0] for entry in entries] if op.get("weighting") else entries
