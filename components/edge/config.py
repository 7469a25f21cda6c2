"""The `edge` section of the config: variants of the model for small devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from components.config_section import Section
from components.models.config import ModelConfig

Kind = Literal["tflite", "pruned", "clustered", "qat", "distilled"]
Quantize = Literal["none", "dynamic", "float16", "int8", "int16x8"]

_TRAINED: tuple[Kind, ...] = ("pruned", "clustered", "qat", "distilled")
_ONLY: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(("steps", "learning_rate"), _TRAINED),
    "sparsity": ("pruned", "distilled"),
    "clusters": ("pruned", "clustered", "distilled"),
    "qat": ("pruned", "clustered", "distilled"),
    **dict.fromkeys(("student", "teacher", "temperature", "alpha", "min_gain"), ("distilled",)),
}
"""Field → the kinds in which it has an effect; other fields have one in all kinds."""
_NEEDS = {"pruned": "sparsity", "clustered": "clusters", "distilled": "student"}
_DIFFERENCES = {"max_mean_difference": 0.05, "max_difference": None}
"""Default bounds of the kinds that are trained: other weights move single rows, also where they predict as well."""


class VariantConfig(Section):
    """Variants of a blessed model for small devices: each is a TensorFlow Lite file of what follows the transform.

    A variant that meets its bounds is pushed with the model, in the folder `edge` of the version.
    """

    kind: Kind = "tflite"
    """tflite: the model itself, for TensorFlow Lite, which is now named LiteRT. The others are trained further on the
    training split: pruned: most weights become 0 (Zhu & Gupta 2017); clustered: the weights of a layer have few
    distinct values (Han et al. 2016); qat: with the rounding of int8, so that the weights adapt to it (Jacob et al.
    2018); distilled: a smaller model that learns from the full one (Hinton et al. 2015)."""
    file: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_.]*$")
    """The name of the file, without `.tflite`; if it is not set, it is made from what follows."""
    quantize: Quantize = "none"
    """none: float32. dynamic: int8 weights, float32 activations. float16: weights. int8: weights and activations.
    int16x8: int8 weights, int16 activations. qat is always int8."""
    sparsity: Literal["2:4"] | float | None = Field(default=None)
    """The share of the weights of dense and convolutional layers that become 0, such as 0.8; or 2:4: two of four
    neighbours. Combinable with `clusters` and `qat`."""
    clusters: int | None = Field(default=None, ge=2, le=256)
    """Distinct weights of each dense and convolutional layer, but for layers with fewer weights. Combinable with
    `qat`."""
    qat: bool = False
    """Whether the last part of the training is with the rounding of int8; what is 0 stays 0, and clusters stay."""
    student: ModelConfig | None = None
    """The smaller model, a section like `model`. It reads the same features."""
    teacher: int | None = None
    """The pushed version that the student learns from; if it is not set, the model of the run. Its features must be
    those of the run."""
    temperature: PositiveFloat = 4.0
    """What the logits of teacher and student are divided by, so that small probabilities count; no effect in a
    regression."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """The weight of the labels in the student's loss; the teacher's predictions have the rest."""
    min_gain: float | None = None
    """How far the metric of the student, in the mean of three seeds, has to be above that of the same student trained
    alone; none: no bound."""
    steps: PositiveInt | None = None
    """Steps of each part of the training; without it, those of `training.steps` for a student, and a quarter of them
    for what follows."""
    learning_rate: PositiveFloat | None = None
    """Without it, that of `training.learning_rate` for a student, and a quarter of it for what follows."""
    representative: int = Field(default=500, ge=1, le=100_000)
    """Rows of the training split from which int8 and int16x8 find the ranges of activations."""
    max_metric_drop: float = Field(default=0.005, ge=0)
    """How far the metric may be below that of the full model: AUC (binary), accuracy (multiclass), R² (regression)."""
    max_mean_difference: float | None = Field(default=0.01, ge=0)
    """Greatest mean of the absolute difference to the full model's prediction: of probabilities; of a regression in
    standard deviations of the label; none: no bound. 0.05 in the kinds that are trained."""
    max_difference: float | None = Field(default=0.1, ge=0)
    """Greatest such difference of any row; none: no bound, as in the kinds that are trained. A metric hides rows that
    move far."""
    max_kilobytes: float | None = Field(default=None, gt=0)
    """Greatest size of the file in kB of 1000 bytes; none: no bound."""
    max_p99_ms: float | None = Field(default=None, gt=0)
    """Greatest 99th percentile of the latency of one row with one thread, in milliseconds, on the machine of the run;
    none: no bound."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("kind", "tflite") not in _TRAINED:
            return values
        trains_rounding = values["kind"] == "qat" or values.get("qat")
        return {**_DIFFERENCES, **({"quantize": "int8"} if trains_rounding else {}), **values}

    @model_validator(mode="after")
    def _check_kind(self) -> VariantConfig:
        fields = type(self).model_fields
        for name, kinds in _ONLY.items():
            if getattr(self, name) != fields[name].default and self.kind not in kinds:
                raise ValueError(f"{name} has no effect in {self.kind}, only in {', '.join(kinds)}; remove it")
        needed = _NEEDS.get(self.kind)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"kind: {self.kind} needs {needed}")
        if isinstance(self.sparsity, float) and not 0 < self.sparsity < 1:
            raise ValueError(f'sparsity: expected a number between 0 and 1, or "2:4", received {self.sparsity:g}')
        if self.trains_rounding and self.quantize != "int8":
            raise ValueError(f"quantize: expected int8, which qat is made for, received {self.quantize}; remove it")
        if self.student and (self.student.run_fn or self.student.has_forest):
            raise ValueError("student: expected a network of kind or build; a run_fn or trees cannot be converted")
        return self

    @property
    def is_trained(self) -> bool:
        """Whether it has other weights than the model."""
        return self.kind in _TRAINED

    @property
    def trains_rounding(self) -> bool:
        """Whether the last part of the training is with the rounding of int8."""
        return self.qat or self.kind == "qat"

    @property
    def name(self) -> str:
        """The name of the variant, and of its file without `.tflite`."""
        if self.file:
            return self.file
        parts = ["tflite"] if self.kind == "tflite" else []
        if self.student:
            parts += ["distilled", "own" if self.student.build else self.student.kind]
        if self.sparsity:
            parts += ["pruned", str(self.sparsity).replace(":", "of")]
        if self.clusters:
            parts += ["clustered", str(self.clusters)]
        if self.trains_rounding:
            parts.append("qat")
        elif self.kind == "tflite" or self.quantize != "none":
            parts.append(self.quantize)
        return "_".join(parts)


def _distinct(variants: Sequence[VariantConfig]) -> Sequence[VariantConfig]:
    names = [variant.name for variant in variants]
    if repeated := {name for name in names if names.count(name) > 1}:
        text = ", ".join(sorted(repeated))
        raise ValueError(f"expected variants that differ, received {text} more than once; remove one, or set its file")
    return variants


EdgeConfig = Annotated[tuple[VariantConfig, ...], AfterValidator(_distinct)]
"""The section: a list of variants."""
