"""StatisticsGen as a TFX component: TFX's, with our executor."""

from __future__ import annotations

from tfx.components import StatisticsGen as StockStatisticsGen
from tfx.dsl.components.base import executor_spec

from components.statistics.executor import Executor


class StatisticsGen(StockStatisticsGen):  # type: ignore[misc]
    """Computes the statistics of each split; arguments and output are those of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
