"""A TFMA metric that creates its computations for each model and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow_model_analysis as tfma


class KeyedMetric(tfma.metrics.Metric):  # type: ignore[misc]
    """A metric in TFMA's interface.

    Args:
      name: Name of the metric.
      computations: (name, TFMA's config, fields of a key: `model_name`, `output_name`, `example_weighted`) →
        computations.
    """

    def __init__(
        self, name: str, computations: Callable[[str, tfma.EvalConfig | None, dict[str, Any]], list[Any]]
    ) -> None:
        # TFMA passes only arguments that are in the signature.
        def compute_key(
            name: str,
            eval_config: tfma.EvalConfig | None = None,
            model_name: str = "",
            output_name: str = "",
            example_weighted: bool = False,
        ) -> list[Any]:
            key_fields = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
            return computations(name, eval_config, key_fields)

        super().__init__(tfma.metrics.merge_per_key_computations(compute_key), name=name)
