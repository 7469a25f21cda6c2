"""The preprocessing_fn of Transform: the declared operations, or the user's own function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.base import user_code
from components.base.errors import InputError
from components.features import feature_names, ops, row_key, row_weight
from components.features.analysis import Collisions, Requirement, UnparsedDates, analyze
from components.features.column import Parsed
from components.features.column_group import Columns
from components.features.encoding_ops import TargetMean
from components.features.label import LabelTensor, label
from components.features.plan import FeaturePlan
from components.features.target import Target
from components.features.value_table import ValueTable

PATH = f"{__name__}.preprocessing_fn"
"""Import path of the function, which is a parameter of TFX's Transform."""


def preprocessing_fn(inputs: dict[str, Parsed], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Convert raw features to transformed features and the label.

    Args:
      inputs: Column name → parsed feature, sparse or dense according to the schema.
      custom_config: Dict with the key `plan`, a FeaturePlan as JSON.

    Returns:
      Transformed name → tensor; see `ops.output_spec` for features, and `label.LabelTensor` for the label.

    Raises:
      InputError: If an operation does not accept a column's dtype, TFX's executor does not compute it, or the user's
        function failed.
    """
    plan = FeaturePlan.model_validate_json(custom_config["plan"])
    user_fn = plan.features.preprocessing_fn
    if user_fn:
        takes_config = "custom_config" in inspect.signature(user_code.load(user_fn)).parameters
        return dict(user_code.call(user_fn, inputs, **({"custom_config": custom_config} if takes_config else {})))
    tables = [feature.op.op for feature in plan.features.declared if feature.op.is_columnar]
    if tables:
        raise InputError(
            f"Transform: expected this project's executor for the operation {tables[0]}, received TFX's",
            "remove runtime.vectorised, or the operation",
        )
    declared = DeclaredOperations(plan, Columns(inputs))
    requirements = declared.requirements
    return declared.outputs(dict(zip(requirements, analyze(list(requirements.values())), strict=True)))


class DeclaredOperations:
    """Applies the declared operations and the label to the columns of a batch, in the graph that is being traced.

    Args:
      plan: Plan with the features and the labels.
      columns: The columns of the batch, with all `columns_read`.

    Raises:
      InputError: If an operation or the label does not accept a column's dtype.
    """

    def __init__(self, plan: FeaturePlan, columns: Columns) -> None:
        self._columns = columns
        self._features = plan.features.declared
        self._weight = None if plan.weight is None else row_weight.compute(self._columns[plan.weight])
        target = Target(plan, columns, self._weight) if uses_target(plan) else None
        self._groups = ops.group(self._features, self._columns, target)
        self._label = label(plan, self._columns, self._weight)
        self._row_keys = {} if plan.row_key is None else row_key.compute(plan.row_key, self._columns)
        if plan.list_column is not None:
            self._row_keys[feature_names.LIST_KEY] = row_key.hash_group([self._columns[plan.list_column]])

    @functools.cached_property
    def requirements(self) -> Mapping[str, Requirement]:
        """Name → required statistics of the training split. One pass computes all of them.

        Reading this property adds their tensors to the graph, so a graph that only needs `outputs` does not contain
        them.
        """
        label_requirements = dict(zip(_label_names(self._label), self._label.requirements, strict=True))
        requirements: dict[str, Requirement] = {**ops.requirements(self._groups), **label_requirements}
        if self._weight is not None:
            requirements[feature_names.WEIGHT_SCALE] = row_weight.requirement(self._weight)
        reported: list[Collisions | UnparsedDates] = [
            *ops.collisions(self._features, self._columns),
            *ops.require_unparsed_dates(self._features, self._columns),
        ]
        return requirements | {requirement.name: requirement for requirement in reported}

    def outputs(self, results: Mapping[str, tf.Tensor | ValueTable]) -> dict[str, tf.Tensor]:
        """Return the features, the label, the weight and the keys of the row.

        Args:
          results: Name of a requirement → its result.
        """
        computed: dict[str, tf.Tensor] = {}
        for number, group in enumerate(self._groups):
            computed |= ops.apply(group, _name_result(number, group, results.get(group.name)))
        outputs = {feature.name: computed[feature.name] for feature in self._features}
        outputs[feature_names.LABEL] = self._label.finish([results[name] for name in _label_names(self._label)])
        if self._weight is not None:
            outputs[feature_names.WEIGHT] = tf.cast(self._weight, tf.float32)
        return outputs | self._row_keys


def _label_names(label: LabelTensor) -> list[str]:
    """Return the names of a label's requirements. They differ from names of features, which end with the operation."""
    return [f"{feature_names.LABEL}/{number}" for number in range(len(label.requirements))]


def _name_result(
    number: int, group: ops.FeatureGroup, result: tf.Tensor | ValueTable | None
) -> tf.Tensor | ValueTable | None:
    """Give the analysis results of a group a name in the graph, and add a constant with the names of its features.

    `host.export` reads both. The path of a file remains an eager tensor, see `analysis.constant`.
    """
    if result is None or isinstance(result, ValueTable) or result.dtype == tf.string:
        return result
    name = feature_names.feature_names_constant(number)
    features = tf.constant([feature.name for feature in group.features], name=name)
    # TFT removes ops on which no output depends, so make the result depend on the names.
    with tf.control_dependencies([features]):
        return tf.identity(result, feature_names.analysis_tensor(number))


def uses_target(plan: FeaturePlan) -> bool:
    """Return whether an operation of the plan uses the label of the training rows."""
    return any(isinstance(feature.op, TargetMean) for feature in plan.features.declared)


def columns_read(plan: FeaturePlan) -> list[str]:
    """Return the raw columns that the declared operations, the label, the weight and the keys of the row read."""
    single = [name for name in (plan.weight, plan.list_column) if name is not None]
    row_columns = (*(plan.row_key.columns if plan.row_key else ()), *single)
    return list(dict.fromkeys((*plan.features.columns_read, *plan.label_columns, *row_columns)))
