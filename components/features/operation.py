"""The registry of the functions of the feature operations; OPS of components.features.config has their settings.

An operation is an entry of `OPERATIONS`: a function that transforms a column, through TFT so that training and serving
share the graph, and functions that return its requirement on the analysis and its output spec. How it treats missing
values is documented in its settings class.

An operation that computes each value by itself is elementwise: its functions get all columns with the same settings and
dtype at once, as a ColumnGroup.
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
      transform: (settings, column or group, result of the analysis or None) → the feature, [batch, …], or those of a
        group, [batch, columns, …]; of an image, the encoded one.
      requirement: (settings, column or group, feature's name) → the statistics of the training split that it uses, or
        None.
      output_spec: (settings, feature's name, vocabulary sizes) → the feature's dtype and shape.
      hashed: (settings, column) → the texts that it hashes, string [n], or None.
      is_elementwise: settings → whether transform and requirement get a ColumnGroup; otherwise they get a Column.
    """

    transform: Callable[[Any, Any, Any], tf.Tensor]
    requirement: Callable[[Any, Any, str], Requirement | None]
    output_spec: Callable[[Any, str, VocabularySize], Dense | Ids]
    hashed: Callable[[Any, Column], tf.Tensor | None]
    is_elementwise: Callable[[Any], bool]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)
AnyColumns = TypeVar("AnyColumns")
"""Column; of an elementwise operation, FirstValues, which a ColumnGroup is."""
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
      op: the settings class.
      output_spec: see Operation.
      requirement: see Operation; without one, the transform gets None.
      hashed: see Operation.
      elementwise: whether the functions compute each value by itself, and so those of many columns at once; with some
        settings, if it is a function.
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
