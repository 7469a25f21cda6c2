"""The `edge` section of the config: variants of the model for small devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.config_section import Section

Quantize = Literal["none", "dynamic", "float16", "int8", "int16x8"]

EXPORTED_OPS = (
    *("z_score", "log", "min_max", "clip", "pass_through", "missing", "piecewise_linear", "cyclical", "bucketize"),
    *("vocab", "hash", "cross"),
)
"""The operations that `preprocessing` computes without TensorFlow."""


class TfliteConfig(Section):
    """Variants of a blessed model for small devices: each is a TensorFlow Lite file of what follows the transform.

    A variant that meets its bounds is pushed with the model, in the folder `edge` of the version.
    """

    kind: Literal["tflite"] = "tflite"
    """tflite: a file for TensorFlow Lite, which is now named LiteRT."""
    quantize: Quantize = "none"
    """none: float32. dynamic: int8 weights, float32 activations. float16: weights. int8: weights and activations.
    int16x8: int8 weights, int16 activations."""
    representative: int = Field(default=500, ge=1, le=100_000)
    """Rows of the training split from which int8 and int16x8 find the ranges of activations."""
    max_metric_drop: float = Field(default=0.005, ge=0)
    """How far the metric may be below that of the full model: AUC (binary), accuracy (multiclass), R² (regression)."""
    max_mean_difference: float = Field(default=0.01, ge=0)
    """Greatest mean of the absolute difference to the full model's prediction: of probabilities; of a regression in
    standard deviations of the label."""
    max_difference: float | None = Field(default=0.1, ge=0)
    """Greatest such difference of any row; none: no bound. A metric hides rows that move far."""
    max_kilobytes: float | None = Field(default=None, gt=0)
    """Greatest size of the file in kB of 1000 bytes; none: no bound."""
    max_p99_ms: float | None = Field(default=None, gt=0)
    """Greatest 99th percentile of the latency of one row with one thread, in milliseconds, on the machine of the run;
    none: no bound."""

    @property
    def name(self) -> str:
        """The name of the variant, and of its file without `.tflite`."""
        return f"{self.kind}_{self.quantize}"


def _distinct(variants: Sequence[TfliteConfig]) -> Sequence[TfliteConfig]:
    names = [variant.name for variant in variants]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"expected variants that differ, received {', '.join(sorted(repeated))} more than once")
    return variants


EdgeConfig = Annotated[tuple[TfliteConfig, ...], AfterValidator(_distinct)]
"""The section: a list of variants."""
