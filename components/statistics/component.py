"""StatisticsGen as a TFX component, with our executor."""

from __future__ import annotations

from tfx.components import StatisticsGen as StockStatisticsGen
from tfx.dsl.components.base import executor_spec

from components.statistics.executor import Executor


class StatisticsGen(StockStatisticsGen):  # type: ignore[misc]
    """Computes the statistics of the splits, with the arguments and the output of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
