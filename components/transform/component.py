"""Transform as a TFX component: TFX's, with our executor."""

from __future__ import annotations

from tfx.components import Transform as StockTransform
from tfx.dsl.components.base import executor_spec

from components.transform.executor import Executor


class Transform(StockTransform):  # type: ignore[misc]
    """Analyzes and transforms examples; arguments and outputs are those of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
