"""The preprocessing_fn of Transform: the declared operations, or the user's own function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from components import user_code
from components.features import feature_names, ops, row_key, row_weight
from components.features.analysis import Requirement, analyze
from components.features.column import Parsed, column
from components.features.label import label
from components.features.plan import FeaturePlan

PATH = f"{__name__}.preprocessing_fn"
"""Import path, a parameter of TFX's Transform."""


def preprocessing_fn(inputs: dict[str, Parsed], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Turns raw features into transformed features and the label.

    Args:
      inputs: column → parsed feature; sparse or dense, as in the schema.
      custom_config: `plan`, a FeaturePlan as JSON.

    Returns:
      Transformed name → tensor; see `ops.output_spec` for features, and `label.Label` for the label.

    Raises:
      InputError: an operation does not take a column's dtype, or the user's function failed.
    """
    plan = FeaturePlan.model_validate_json(custom_config["plan"])
    own = plan.features.preprocessing_fn
    if own:
        takes_config = "custom_config" in inspect.signature(user_code.load(own)).parameters
        return dict(user_code.call(own, inputs, **({"custom_config": custom_config} if takes_config else {})))
    declared = DeclaredOperations(plan, inputs)
    return declared.outputs(analyze(declared.requirements))


class DeclaredOperations:
    """The declared operations and the label on the columns of a batch, in the graph that is being traced.

    Attributes:
      requirements: the statistics of the training split that they use; all at once, so that one pass computes them.

    Args:
      plan: the features and the labels.
      inputs: column → parsed feature, with all `columns_read`.

    Raises:
      InputError: an operation or the label does not take a column's dtype.
    """

    requirements: Sequence[Requirement]

    def __init__(self, plan: FeaturePlan, inputs: Mapping[str, Parsed]) -> None:
        columns = {name: column(name, inputs[name]) for name in columns_read(plan)}
        self._features = plan.features.declared
        self._sources = {feature.name: ops.read(feature, columns) for feature in self._features}
        self._weight = None if plan.weight is None else row_weight.compute(columns[plan.weight])
        self._label = label(plan, columns, self._weight)
        self._row_key = None if plan.row_key is None else row_key.compute(plan.row_key, columns)
        of_features = ops.requirements(self._features, self._sources)
        self._analyzed = list(of_features)
        of_weight = [] if self._weight is None else [row_weight.requirement(self._weight)]
        of_hashes = ops.collisions(self._features, self._sources)
        of_dates = ops.unparsed_dates(self._features, self._sources)
        self.requirements = [*of_features.values(), *self._label.requirements, *of_weight, *of_hashes, *of_dates]

    def outputs(self, results: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the features, the label, the weight and the key of a row, from the result of each requirement."""
        analyzed = {name: _named(name, result) for name, result in zip(self._analyzed, results, strict=False)}
        outputs = {
            each.name: ops.apply(each.op, self._sources[each.name], analyzed.get(each.vocabulary))
            for each in self._features
        }
        outputs[feature_names.LABEL] = self._label.finish(results[len(analyzed) :])
        if self._weight is not None:
            outputs[feature_names.WEIGHT] = tf.cast(self._weight, tf.float32)
        if self._row_key is not None:
            outputs[feature_names.ROW_KEY] = self._row_key
        return outputs


def _named(feature: str, result: tf.Tensor) -> tf.Tensor:
    """Names the numbers of an analysis in the graph; the path of a file stays an eager tensor, see `constants`."""
    return result if result.dtype == tf.string else tf.identity(result, feature_names.analysis_tensor(feature))


def columns_read(plan: FeaturePlan) -> list[str]:
    """Returns the raw columns that the declared operations, the label, the weight and the key of a row use."""
    of_row = (*(plan.row_key.columns if plan.row_key else ()), *((plan.weight,) if plan.weight else ()))
    return list(dict.fromkeys((*plan.features.columns_read, *plan.label_columns, *of_row)))
