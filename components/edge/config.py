"""The `edge` section of the config: variants of the model for small devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from components.base.config_section import Section, check_fields_of_kind
from components.models.config import ModelConfig

Kind = Literal["tflite", "pruned", "clustered", "qat", "distilled"]
Quantize = Literal["none", "dynamic", "float16", "int8", "int16x8"]
TensorType = Literal["float32", "int8", "uint8"]

_TRAINED_KINDS: tuple[Kind, ...] = ("pruned", "clustered", "qat", "distilled")
_KINDS_OF_FIELD: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys(("steps", "learning_rate"), _TRAINED_KINDS),
    **dict.fromkeys(("sparsity", "channels"), ("pruned", "distilled")),
    "clusters": ("pruned", "clustered", "distilled"),
    "qat": ("pruned", "clustered", "distilled"),
    **dict.fromkeys(("student", "teacher", "temperature", "alpha", "min_gain"), ("distilled",)),
}
"""Field → the kinds that use it. Fields that are not listed are used by all kinds."""
_REQUIRED_FIELDS = {"pruned": ("sparsity", "channels"), "clustered": ("clusters",), "distilled": ("student",)}
"""Kind → fields, of which at least one is set."""
_DEFAULTS_OF_TRAINED = {"max_mean_difference": 0.05, "max_difference": None}
"""Default bounds of the trained kinds: with other weights, single predictions differ even if the metric does not."""


class PruningConfig(Section):
    """When weights become 0 during the training of a pruned variant."""

    kind: Literal["polynomial", "constant"] = "polynomial"
    """polynomial: the share of zeros rises from `initial` to `sparsity`, fast at first (Zhu & Gupta 2017); constant: it
    is `sparsity` from `begin` on. 2:4 is always constant."""
    initial: float = Field(default=0.0, ge=0, lt=1)
    """polynomial: share of zeros at `begin`."""
    begin: float = Field(default=0.0, ge=0, lt=1)
    """Share of the steps before the first weights become 0."""
    end: float = Field(default=0.6, gt=0, le=1)
    """Share of the steps after which the zeros stay where they are, and the other weights adapt."""

    @model_validator(mode="after")
    def _check_order(self) -> PruningConfig:
        if self.begin >= self.end:
            raise ValueError(f"expected begin below end, received {self.begin:g} and {self.end:g}")
        return self


class DeviceConfig(Section):
    """A device on which a variant runs before it is pushed."""

    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments, which run on this machine and use the device, such as a script that calls adb or ssh.
    `{model}`, `{inputs}` and `{outputs}` become paths: the file, an NPZ file with the rows' inputs by name, and the NPZ
    file to write, with `predictions` and `milliseconds` of each row. `components/edge/device_program.py` does so."""
    rows: PositiveInt = 200
    """Maximum number of rows of the eval split to run."""
    max_minutes: PositiveFloat = 10.0
    """Time limit of the command."""
    max_difference: float = Field(default=0.01, ge=0)
    """Maximum difference between a prediction of the device and of this machine; in probabilities, or in the label's
    unit."""


class VariantConfig(Section):
    """A variant of a blessed model for small devices: a TensorFlow Lite file of the model without its transform.

    A variant that meets its bounds is pushed with the model, in the folder `edge` of the version.
    """

    kind: Kind = "tflite"
    """tflite: the model itself, converted to TensorFlow Lite, which is now called LiteRT. The other kinds are trained
    further on the training split. pruned: most weights become 0 (Zhu & Gupta 2017), or units and filters are removed
    (Li et al. 2017); clustered: the weights of a layer get few distinct values (Han et al. 2016); qat:
    quantization-aware training, in which the weights adapt to the rounding of int8 (Jacob et al. 2018); distilled: a
    smaller model that learns from the full model (Hinton et al. 2015)."""
    file: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_.]*$")
    """Name of the file without `.tflite`. By default, it is composed of the settings below."""
    quantize: Quantize = "none"
    """none: float32. dynamic: int8 weights, float32 activations. float16: float16 weights. int8: int8 weights and
    activations. int16x8: int8 weights, int16 activations. qat always uses int8."""
    io: TensorType = "float32"
    """With `quantize: int8`: the dtype of the file's numbers and prediction, for accelerators without floats. The
    verdict and the file have the scale and zero point of each; IDs stay int64."""
    sparsity: Literal["2:4"] | float | None = Field(default=None)
    """The share of the weights of dense and convolutional layers that become 0, such as 0.8; or 2:4, where two of four
    neighbouring weights become 0. It can be combined with `clusters` and `qat`."""
    channels: float | None = Field(default=None, gt=0, lt=1)
    """The share of the units of every dense layer and of the filters of every convolution that are removed, such as
    0.5: those with the smallest weights (Li et al. 2017). Unlike zeros, this makes a file smaller and faster. It can be
    combined with `sparsity`, `clusters` and `qat`, whose stages follow."""
    pruning: PruningConfig = Field(default_factory=PruningConfig)
    """With `sparsity`: how zeros appear."""
    clusters: int | None = Field(default=None, ge=2, le=256)
    """Number of distinct weights per dense and convolutional layer. Layers with fewer weights do not change. It can be
    combined with `qat`."""
    qat: bool = False
    """Whether training ends with quantization-aware training for int8. Zeros and clusters are preserved."""
    student: ModelConfig | None = None
    """The smaller model, a section like `model`. It must read the same features."""
    teacher: int | None = None
    """Number of the pushed version that teaches the student. By default, the model of the run is the teacher. The
    features of the version must be equal to the features of the run."""
    temperature: PositiveFloat = 4.0
    """The logits of teacher and student are divided by this number, so that small probabilities have more influence. It
    is ignored for a regression."""
    alpha: float = Field(default=0.5, ge=0, le=1)
    """The weight of the labels in the student's loss. The weight of the teacher's predictions is 1 - `alpha`."""
    min_gain: float | None = None
    """Minimum gain in the metric over the same student trained without a teacher, as the mean of three seeds. By
    default, the gain is not checked."""
    steps: PositiveInt | None = None
    """Number of training steps per stage (distillation, removal of channels, pruning, clustering, quantization-aware
    training). By default, `training.steps` for distillation, and a quarter of it for the other stages."""
    learning_rate: PositiveFloat | None = None
    """Learning rate. By default, `training.learning_rate` for distillation, and a quarter of it for the other
    stages."""
    representative: int = Field(default=500, ge=1, le=100_000)
    """Number of rows of the training split that are used to find the ranges of activations for int8 and int16x8, as
    many of each class as possible."""
    max_metric_drop: float = Field(default=0.005, ge=0)
    """Maximum drop of the metric below the full model's: AUC (binary), accuracy (multiclass) or R² (regression)."""
    max_mean_difference: float | None = Field(default=0.01, ge=0)
    """Maximum of the mean absolute difference from the full model's predictions, in probabilities or, for a regression,
    in standard deviations of the label. none: not limited. The default is 0.05 for the trained kinds."""
    max_difference: float | None = Field(default=0.1, ge=0)
    """Maximum of this difference in any row, because a metric hides large changes of single rows. none: not
    limited, which is the default for the trained kinds."""
    max_kilobytes: float | None = Field(default=None, gt=0)
    """Maximum size of the file in kB of 1000 bytes. By default, the size is not limited."""
    max_p99_ms: float | None = Field(default=None, gt=0)
    """Maximum of the 99th percentile of the latency of one row with one thread, in milliseconds, on the machine of the
    run; with `device`, on the device. By default, the latency is not limited."""
    device: DeviceConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _set_defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("kind", "tflite") not in _TRAINED_KINDS:
            return values
        trains_rounding = values["kind"] == "qat" or values.get("qat")
        return {**_DEFAULTS_OF_TRAINED, **({"quantize": "int8"} if trains_rounding else {}), **values}

    @model_validator(mode="after")
    def _check_kind(self) -> VariantConfig:
        check_fields_of_kind(self, _KINDS_OF_FIELD, self.kind)
        required = _REQUIRED_FIELDS.get(self.kind, ())
        if required and all(getattr(self, name) is None for name in required):
            raise ValueError(f"kind: {self.kind} needs {' or '.join(required)}")
        if isinstance(self.sparsity, float) and not 0 < self.sparsity < 1:
            raise ValueError(f'sparsity: expected a number between 0 and 1, or "2:4", received {self.sparsity:g}')
        if self.pruning != PruningConfig() and self.sparsity is None:
            raise ValueError("pruning: expected a sparsity, received none; add it, or remove pruning")
        if isinstance(self.sparsity, float) and self.pruning.initial > self.sparsity:
            raise ValueError(
                f"pruning.initial: expected at most sparsity {self.sparsity:g}, received {self.pruning.initial:g}"
            )
        if self.trains_rounding and self.quantize != "int8":
            raise ValueError(f"quantize: expected int8 with qat, received {self.quantize}; remove it")
        if self.io != "float32" and self.quantize != "int8":
            raise ValueError(f"io: expected quantize int8 with {self.io}, received {self.quantize}; change one of both")
        if self.student and (self.student.run_fn or self.student.train or self.student.has_forest):
            raise ValueError(
                "student: expected a network, received trees, a run_fn or train, which cannot be converted; set kind "
                "or build"
            )
        return self

    @property
    def is_trained(self) -> bool:
        """Whether the variant is trained further, so that its weights differ from the model's."""
        return self.kind in _TRAINED_KINDS

    @property
    def trains_rounding(self) -> bool:
        """Whether the training ends with quantization-aware training."""
        return self.qat or self.kind == "qat"

    @property
    def name(self) -> str:
        """The name of the variant, and of its file without `.tflite`."""
        if self.file:
            return self.file
        parts = ["tflite"] if self.kind == "tflite" else []
        if self.student:
            parts += ["distilled", "own" if self.student.build else self.student.kind]
        if self.channels:
            parts += ["pruned", "channels", str(self.channels)]
        if self.sparsity:
            parts += ["pruned", str(self.sparsity).replace(":", "of")]
        if self.clusters:
            parts += ["clustered", str(self.clusters)]
        if self.trains_rounding:
            parts.append("qat")
        elif self.kind == "tflite" or self.quantize != "none":
            parts.append(self.quantize)
        if self.io != "float32":
            parts += [self.io, "io"]
        return "_".join(parts)


def _check_distinct(variants: Sequence[VariantConfig]) -> Sequence[VariantConfig]:
    names = [variant.name for variant in variants]
    if repeated := {name for name in names if names.count(name) > 1}:
        received = ", ".join(sorted(repeated))
        raise ValueError(f"expected distinct variants, received {received} more than once; remove one, or set its file")
    return variants


EdgeConfig = Annotated[tuple[VariantConfig, ...], AfterValidator(_check_distinct)]
"""The section: a list of variants."""
