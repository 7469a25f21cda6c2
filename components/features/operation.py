"""The registry of the feature operations.

An operation is an entry of `OPERATIONS`: a function that transforms a column, through TFT so that training and serving
share the graph, and functions that return its requirement on the analysis and its output spec. How it treats missing
values is documented in its settings class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from components.features.analysis import Requirement
from components.features.base_op import Op
from components.features.column import Column
from components.features.feature_spec import Dense, Ids, VocabularySize


@dataclass(frozen=True)
class Operation:
    """The functions of an operation.

    Attributes:
      transform: (settings, column, result of the analysis or None) → the feature; of an image, the encoded one.
      requirement: (settings, column, feature's name) → the statistics of the training split that it uses, or None.
      output_spec: (settings, feature's name, vocabulary sizes) → the feature's dtype and shape.
      hashed: (settings, column) → the texts that it hashes, string [n], or None.
    """

    transform: Callable[[Any, Column, Any], tf.Tensor]
    requirement: Callable[[Any, Column, str], Requirement | None]
    output_spec: Callable[[Any, str, VocabularySize], Dense | Ids]
    hashed: Callable[[Any, Column], tf.Tensor | None]


OPERATIONS: dict[type[Op], Operation] = {}
AnyOp = TypeVar("AnyOp", bound=Op)
Transform: TypeAlias = Callable[[AnyOp, Column, Any], tf.Tensor]


def operation(
    op: type[AnyOp],
    *,
    output_spec: Callable[[AnyOp, str, VocabularySize], Dense | Ids],
    requirement: Callable[[AnyOp, Column, str], Requirement | None] = lambda op, column, name: None,
    hashed: Callable[[AnyOp, Column], tf.Tensor | None] = lambda op, column: None,
) -> Callable[[Transform[AnyOp]], Transform[AnyOp]]:
    """Registers the decorated function as the transform of an operation; see Operation.

    Args:
      op: the settings class.
      output_spec: see Operation.
      requirement: see Operation; without one, the transform gets None.
      hashed: see Operation.
    """

    def register(transform: Transform[AnyOp]) -> Transform[AnyOp]:
        OPERATIONS[op] = Operation(transform, requirement, output_spec, hashed)
        return transform

    return register
