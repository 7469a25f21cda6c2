"""The registry of the functions of the feature operations; OPS of components.features.config has their settings.

An operation is an entry of `OPERATIONS`. It has a function that transforms a column in the transform graph, which
training and serving share, and functions that return the required statistics and the output spec. Its settings class
documents how it treats missing values.

An elementwise operation computes every output value from one input value. Its functions get all columns with the same
settings and dtype at once, as a ColumnGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from components.base import user_code
from components.base.errors import InputError
from components.features.analysis import Requirement
from components.features.base_op import Op
from components.features.column import Column
from components.features.feature_spec import Dense, Ids, VocabularySize


@dataclass(frozen=True)
class Operation:
    """The functions of an operation.

    Attributes:
      transform: Function (settings, column or group, result of the analysis or None) → feature of shape [batch, …], or
        features of a group, [batch, columns, …]. The feature of an image is the encoded image.
      requirement: Function (settings, column or group, name of the feature) → required statistics of the training
        split, or None.
      output_spec: Function (settings, name of the feature, vocabulary sizes) → dtype and shape of the feature.
      hashed: Function (settings, column) → texts that the operation hashes, string of shape [n], or None.
      is_elementwise: Function settings → whether `transform` and `requirement` get a ColumnGroup instead of a Column.
    """

    transform: Callable[[Any, Any, Any], tf.Tensor]
    requirement: Callable[[Any, Any, str], Requirement | None]
    output_spec: Callable[[Any, str, VocabularySize], Dense | Ids]
    hashed: Callable[[Any, Column], tf.Tensor | None]
    is_elementwise: Callable[[Any], bool]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)
AnyColumns = TypeVar("AnyColumns")
"""Column, or for an elementwise operation FirstValues, which includes ColumnGroup."""
Transform: TypeAlias = Callable[[AnyOp, AnyColumns, Any], tf.Tensor]


def operation(
    op: type[AnyOp],
    *,
    output_spec: Callable[[AnyOp, str, VocabularySize], Dense | Ids],
    requirement: Callable[[AnyOp, Any, str], Requirement | None] = lambda op, column, name: None,
    hashed: Callable[[AnyOp, Column], tf.Tensor | None] = lambda op, column: None,
    elementwise: bool | Callable[[AnyOp], bool] = False,
) -> Callable[[Transform[AnyOp, AnyColumns]], Transform[AnyOp, AnyColumns]]:
    """Register the decorated function as the transform of an operation; see Operation.

    Args:
      op: Settings class of the operation.
      output_spec: See Operation.
      requirement: See Operation. By default the operation does not require statistics.
      hashed: See Operation.
      elementwise: Whether the operation is elementwise. If this depends on the settings, a function of the settings.
    """
    is_elementwise = elementwise if callable(elementwise) else lambda op: bool(elementwise)

    def register(transform: Transform[AnyOp, AnyColumns]) -> Transform[AnyOp, AnyColumns]:
        OPERATIONS[op] = Operation(transform, requirement, output_spec, hashed, is_elementwise)
        return transform

    return register


def find_operation(op: Op) -> Operation:
    """Return the functions of an operation, whose module is imported if it has not been used before.

    Raises:
      InputError: The module, which an installed package contains, cannot be imported, or it does not register
        functions for the operation.
    """
    kind = type(op)
    if kind not in OPERATIONS:
        user_code.load_module(kind.implementation)
    if kind not in OPERATIONS:
        raise InputError(
            f"operations.{op.op}: expected functions of {kind.__qualname__} in {kind.implementation}, received none",
            f"decorate a function there with @operation({kind.__qualname__}, ...)",
        )
    return OPERATIONS[kind]
