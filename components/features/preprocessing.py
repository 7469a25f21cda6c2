"""The preprocessing_fn of Transform: the declared operations, or the user's own function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from components.base import user_code
from components.features import feature_names, ops, row_key, row_weight
from components.features.analysis import Requirement, analyze
from components.features.column import Parsed
from components.features.column_group import Columns
from components.features.label import Label, label
from components.features.plan import FeaturePlan

PATH = f"{__name__}.preprocessing_fn"
"""Import path, a parameter of TFX's Transform."""


def preprocessing_fn(inputs: dict[str, Parsed], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Turn raw features into transformed features and the label.

    Args:
      inputs: Column → parsed feature; sparse or dense, as in the schema.
      custom_config: `plan`, a FeaturePlan as JSON.

    Returns:
      Transformed name → tensor; see `ops.output_spec` for features, and `label.Label` for the label.

    Raises:
      InputError: An operation does not take a column's dtype, or the user's function failed.
    """
    plan = FeaturePlan.model_validate_json(custom_config["plan"])
    own = plan.features.preprocessing_fn
    if own:
        takes_config = "custom_config" in inspect.signature(user_code.load(own)).parameters
        return dict(user_code.call(own, inputs, **({"custom_config": custom_config} if takes_config else {})))
    declared = DeclaredOperations(plan, inputs)
    requirements = declared.requirements
    return declared.outputs(dict(zip(requirements, analyze(list(requirements.values())), strict=True)))


class DeclaredOperations:
    """The declared operations and the label on the columns of a batch, in the graph that is being traced.

    Args:
      plan: The features and the labels.
      inputs: Column → parsed feature, with all `columns_read`.

    Raises:
      InputError: An operation or the label does not take a column's dtype.
    """

    def __init__(self, plan: FeaturePlan, inputs: Mapping[str, Parsed]) -> None:
        self._columns = Columns({name: inputs[name] for name in columns_read(plan)})
        self._features = plan.features.declared
        self._groups = ops.group(self._features, self._columns)
        self._weight = None if plan.weight is None else row_weight.compute(self._columns[plan.weight])
        self._label = label(plan, self._columns, self._weight)
        self._row_key = None if plan.row_key is None else row_key.compute(plan.row_key, self._columns)

    @functools.cached_property
    def requirements(self) -> Mapping[str, Requirement]:
        """The statistics of the training split that they use, by name; all at once, so that one pass computes them.

        Its tensors are added to the graph when it is read, so that the graph of `outputs` does not contain them.
        """
        of_label = zip(_label_names(self._label), self._label.requirements, strict=True)
        requirements: dict[str, Requirement] = {**ops.requirements(self._groups), **dict(of_label)}
        if self._weight is not None:
            requirements[feature_names.WEIGHT_SCALE] = row_weight.requirement(self._weight)
        requirements |= {each.name: each for each in ops.collisions(self._features, self._columns)}
        return requirements | {each.name: each for each in ops.unparsed_dates(self._features, self._columns)}

    def outputs(self, results: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the features, the label, the weight and the key of a row, from the result of each requirement."""
        computed: dict[str, tf.Tensor] = {}
        for number, group in enumerate(self._groups):
            computed |= ops.apply(group, _named(number, group, results.get(group.name)))
        outputs = {feature.name: computed[feature.name] for feature in self._features}
        outputs[feature_names.LABEL] = self._label.finish([results[name] for name in _label_names(self._label)])
        if self._weight is not None:
            outputs[feature_names.WEIGHT] = tf.cast(self._weight, tf.float32)
        if self._row_key is not None:
            outputs[feature_names.ROW_KEY] = self._row_key
        return outputs


def _label_names(label: Label) -> list[str]:
    """Return the names of a label's requirements; a feature's name ends with its operation."""
    return [f"{feature_names.LABEL}/{number}" for number in range(len(label.requirements))]


def _named(number: int, group: ops.FeatureGroup, result: tf.Tensor | None) -> tf.Tensor | None:
    """Names the numbers of an analysis in the graph, and the features that they belong to; see `analyzed_features`.

    The path of a file stays an eager tensor, see `analysis.constant`.
    """
    if result is None or result.dtype == tf.string:
        return result
    features = tf.constant([feature.name for feature in group.features], name=feature_names.analyzed_features(number))
    # TFT removes what no output depends on.
    with tf.control_dependencies([features]):
        return tf.identity(result, feature_names.analysis_tensor(number))


def columns_read(plan: FeaturePlan) -> list[str]:
    """Return the raw columns that the declared operations, the label, the weight and the key of a row use."""
    of_row = (*(plan.row_key.columns if plan.row_key else ()), *((plan.weight,) if plan.weight else ()))
    return list(dict.fromkeys((*plan.features.columns_read, *plan.label_columns, *of_row)))
