"""The metric `bias`. Its class is in metric_class.py, because it imports TFMA."""

from __future__ import annotations

from components.evaluator.config import Metric

BIAS = Metric("MeanBias", frozenset({"binary", "regression"}), better="lower", module="example_addon.metric_class")
