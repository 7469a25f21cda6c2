"""The preprocessing_fn of Transform: the declared operations, or the user's own function."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from components import user_code
from components.features import feature_names, ops
from components.features.analysis import analyze
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
    names = dict.fromkeys((*plan.features.columns_read, *plan.label_expression().columns))
    columns = {name: column(name, inputs[name]) for name in names}
    features = {feature.name: (feature.op, ops.read(feature, columns)) for feature in plan.features.declared}
    plan_label = label(plan, columns)
    optional = {name: ops.requirement(op, source, name) for name, (op, source) in features.items()}
    requirements = {name: requirement for name, requirement in optional.items() if requirement is not None}
    # One call of the analysis for all, so that it is one pass over the training split.
    results = analyze([*requirements.values(), *plan_label.requirements])
    analyzed = dict(zip(requirements, results, strict=False))
    outputs = {name: ops.apply(op, source, analyzed.get(name)) for name, (op, source) in features.items()}
    outputs[feature_names.LABEL] = plan_label.finish(results[len(requirements) :])
    return outputs
