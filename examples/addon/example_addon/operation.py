"""The operation `sqrt`: its settings. Its functions are in operation_graph.py, because they import TensorFlow."""

from __future__ import annotations

from typing import Literal

from components.features.base_op import Dtype, Op


class Sqrt(Op):
    """sign(x) · √|x|. A missing value becomes 0."""

    takes = frozenset[Dtype]({"int", "float"})
    implementation = "example_addon.operation_graph"
    op: Literal["sqrt"] = "sqrt"
