"""The verdict on the variants of a model, as dataclasses and as the file `verdict.json` of EdgeExporter's output."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter

FILE = "verdict.json"


@dataclass(frozen=True)
class Latency:
    """The latency of one row in TensorFlow Lite's interpreter, on the machine of the run.

    Attributes:
      threads: Number of threads of the interpreter.
      p50_ms: Median, in milliseconds.
      p99_ms: 99th percentile, in milliseconds.
      speedup: Time of the float32 file divided by the time of the variant: the median over pairs of successive calls.
    """

    threads: int
    p50_ms: float
    p99_ms: float
    speedup: float


@dataclass(frozen=True)
class Student:
    """The metric of a student with and without a teacher, trained with the same seeds and steps.

    Attributes:
      taught: Metric on the eval split per seed, if the student learns from the teacher. None if it cannot be computed.
      alone: Metric on the eval split per seed, if the student learns from the labels alone.
    """

    taught: tuple[float | None, ...]
    alone: tuple[float | None, ...]


@dataclass(frozen=True)
class TensorRange:
    """The dtype of an input or output of a file, and the numbers that it stands for: scale * (stored - zero_point).

    Attributes:
      dtype: NumPy's name of the dtype, such as int8.
      scale: Distance of two neighbouring numbers; 0 if the tensor is not quantized.
      zero_point: Stored integer that stands for 0.
    """

    dtype: str
    scale: float
    zero_point: int


@dataclass(frozen=True)
class DeviceResult:
    """The measurements of a variant on a device.

    Attributes:
      rows: Number of rows.
      p50_ms: Median of the latency of a row, in milliseconds.
      p99_ms: 99th percentile of the latency.
      max_difference: Maximum difference of a prediction from this machine's.
      metric: Metric of the device's predictions of these rows. None if it cannot be computed.
    """

    rows: int
    p50_ms: float
    p99_ms: float
    max_difference: float
    metric: float | None = None


@dataclass(frozen=True)
class VariantResult:
    """The measurements of a variant, and whether it may be pushed.

    Attributes:
      name: Name of the variant.
      why: Reasons why the variant is not pushed. Empty if it is pushed.
      bytes: Size of the file. This and the following measurements are None or empty if the file could not be created.
      gzip_bytes: Size of the file compressed by gzip.
      metric: Metric on the eval split.
      mean_difference: Mean absolute difference from the full model's predictions; see VariantConfig for the unit.
      max_difference: Maximum absolute difference from the full model's predictions.
      latencies: Latencies with one thread and with two threads.
      sparsity: Share of zeros among the weights of the file's dense and convolutional layers. None without such layers.
      distinct: Maximum number of distinct weights in one of these layers.
      layers: Names of the layers that were pruned, clustered or trained with rounding.
      left_out: Names of the other layers with weights.
      removed: Name of a layer that lost units or filters → their number before and after.
      whole: Name of a dense or convolutional layer that did not → reason.
      student: Metrics of the student. None if the variant is not distilled.
      tensors: Name of an input or output of the file → its range.
      unsupported: Accelerator → operations of the file that it does not support.
      device: Measurements on the user's device. None without a device.
    """

    name: str
    why: tuple[str, ...]
    bytes: int | None = None
    gzip_bytes: int | None = None
    metric: float | None = None
    mean_difference: float | None = None
    max_difference: float | None = None
    latencies: tuple[Latency, ...] = ()
    sparsity: float | None = None
    distinct: int | None = None
    layers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    removed: dict[str, tuple[int, int]] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    student: Student | None = None
    tensors: dict[str, TensorRange] = field(default_factory=dict)
    unsupported: dict[str, tuple[str, ...]] = field(default_factory=dict)
    device: DeviceResult | None = None

    @property
    def passed(self) -> bool:
        """Whether the variant may be pushed."""
        return not self.why


@dataclass(frozen=True)
class EdgeVerdict:
    """The verdict on all variants of a model.

    Attributes:
      metric: Name of the metric: `auc`, `accuracy` or `r2`. Empty if variants were not created.
      full: Metric of the full model. None if it cannot be computed, for example the AUC of rows with a single class.
      rows: Number of rows of the eval split that were compared.
      preprocessing_rows: Number of rows of the eval split on which `preprocessing.py` was compared with the transform
        graph.
      variants: Results of the variants, in the order of the config.
      why: Reason why variants were not created. None if they were.
    """

    metric: str = ""
    full: float | None = None
    rows: int = 0
    preprocessing_rows: int = 0
    variants: tuple[VariantResult, ...] = ()
    why: str | None = None

    def to_json(self) -> str:
        """Return the content of `verdict.json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EdgeVerdict:
        """Parse the return value of `to_json`."""
        return TypeAdapter(cls).validate_json(text)
