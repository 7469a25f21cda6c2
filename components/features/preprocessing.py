"""The preprocessing_fn that Transform runs: declared operations, or the user's own function behind one door."""

from __future__ import annotations

import inspect
from typing import Any

from components import user_code
from components.features import names, ops
from components.features.analysis import analyze
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
    target = plan.label_expression()
    read = dict.fromkeys((*plan.features.columns_read, *target.columns))
    columns = {name: column(name, inputs[name]) for name in read}
    chosen = {feature.name: (feature.op, ops.read(feature, columns)) for feature in plan.features.declared}
    goal = label(plan, columns)
    needs = {name: ops.need(op, given, name) for name, (op, given) in chosen.items()}
    asked = {name: need for name, need in needs.items() if need is not None}
    answers = analyze([*asked.values(), *goal.needs])
    known = dict(zip(asked, answers, strict=False))
    outputs = {name: ops.apply(op, given, known.get(name)) for name, (op, given) in chosen.items()}
    outputs[names.LABEL] = goal.finish(answers[len(asked) :])
    return outputs
