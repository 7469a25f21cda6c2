"""The preprocessing_fn that Transform runs: declared operations, or the user's own function behind one door."""

from __future__ import annotations

import inspect
from typing import Any

from components import user_code
from components.features import names, ops
from components.features.column import column
from components.features.label import label
from components.features.plan import FeaturePlan

PATH = f"{__name__}.preprocessing_fn"
"""Import path for TFX's Transform."""


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, Any]:
    """Turns raw features into transformed features and the label.

    Args:
      inputs: column → SparseTensor or Tensor, as the schema says.
      custom_config: `plan`, a FeaturePlan as JSON.

    Returns:
      transformed name → Tensor. See `ops` for what each operation gives, and `label` for the label.

    Raises:
      InputError: an operation does not take a column's dtype, or the user's function failed.
    """
    plan = FeaturePlan.model_validate_json(custom_config["plan"])
    own = plan.features.preprocessing_fn
    if own:
        takes_config = "custom_config" in inspect.signature(user_code.load(own)).parameters
        return dict(user_code.call(own, inputs, **({"custom_config": custom_config} if takes_config else {})))
    outputs = {
        names.feature(name, op.op): ops.apply(op, column(name, inputs[name]), names.feature(name, op.op))
        for name, chosen in plan.features.columns.items()
        for op in chosen
    }
    read = {name: column(name, inputs[name]) for name in plan.label_expression().columns}
    outputs[names.LABEL] = label(plan, read)
    return outputs
