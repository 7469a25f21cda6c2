"""The verdict on the variants of a model, as dataclasses and as the file `verdict.json` of EdgeExporter's artifact."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

FILE = "verdict.json"


@dataclass(frozen=True)
class Latency:
    """The latency of one row in TensorFlow Lite's interpreter, on the machine of the run.

    Attributes:
      threads: of the interpreter.
      p50_ms: median, in milliseconds.
      p99_ms: 99th percentile, in milliseconds.
      speedup: median, over pairs of calls one after the other, of the float32 file's time divided by this one's.
    """

    threads: int
    p50_ms: float
    p99_ms: float
    speedup: float


@dataclass(frozen=True)
class Student:
    """A student that has learned from a teacher, beside the same student trained alone, with the same seeds and steps.

    Attributes:
      taught: the metric on the rows of the eval split for each seed; None where it cannot be computed.
      alone: the same of those trained on the labels alone.
    """

    taught: tuple[float | None, ...]
    alone: tuple[float | None, ...]


@dataclass(frozen=True)
class VariantResult:
    """What was measured of a variant, and whether it may be pushed.

    Attributes:
      name: of the variant.
      why: the reasons why it is not pushed; none: it is.
      bytes: size of the file; None, as all that follows, if it could not be made.
      gzip_bytes: its size compressed by gzip.
      metric: on the rows of the eval split.
      mean_difference: mean of the absolute difference to the full model's prediction, see VariantConfig.
      max_difference: the greatest one.
      latencies: with one thread and with two.
      sparsity: the share of zeros among the weights of the file's dense and convolutional layers; None without such
        layers.
      distinct: the greatest number of distinct weights in one of these layers.
      layers: names of the layers that were pruned, clustered or trained with rounding.
      left_out: names of other layers with weights.
      student: if it is one.
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
    student: Student | None = None

    @property
    def passed(self) -> bool:
        """Whether it may be pushed."""
        return not self.why


@dataclass(frozen=True)
class EdgeVerdict:
    """The variants of a model.

    Attributes:
      metric: the name of the metric: auc, accuracy or r2; empty if nothing was made.
      full: its value of the full model; None if it cannot be computed, such as AUC of one class.
      rows: rows of the eval split that were compared.
      preprocessing_rows: rows of it whose inputs were computed by the reference and by the transform graph.
      variants: one for each of the config.
      why: why no variant was made; None if they were.
    """

    metric: str = ""
    full: float | None = None
    rows: int = 0
    preprocessing_rows: int = 0
    variants: tuple[VariantResult, ...] = ()
    why: str | None = None

    def to_json(self) -> str:
        """Returns the content of `verdict.json`."""
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EdgeVerdict:
        """Parses the result of `to_json`."""
        return TypeAdapter(cls).validate_json(text)
