"""Transform as a TFX component: TFX's, with our executor, or with TFX's and a sample for later nodes."""

from __future__ import annotations

from tfx.components import Transform as TfxTransform
from tfx.dsl.components.base import executor_spec

from components.transform.executor import Executor, StockExecutor


class Transform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples; arguments and outputs are those of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)


class StockTransform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples by TFX's executor; arguments and outputs are those of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(StockExecutor)
