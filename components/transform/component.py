"""Transform as a TFX component, with our executor, or with TFX's executor that also writes a sample for later nodes."""

from __future__ import annotations

from tfx.components import Transform as TfxTransform
from tfx.dsl.components.base import executor_spec

from components.transform.executor import Executor, StockExecutor


class Transform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples, with the arguments and outputs of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)


class StockTransform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples with TFX's executor, and the arguments and outputs of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(StockExecutor)
