"""A small safe grammar for labels, such as `tips > 0.2 * fare`: parsed here, never evaluated as Python.

expression := or-chains of and-chains of `not`, comparisons (== != < <= > >=), + - * /, unary -,
              parentheses, numbers, 'strings' and column names
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_ARITHMETIC = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
_COMPARISON = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_LOGIC = {ast.And: "logical_and", ast.Or: "logical_or"}


class Arithmetic(Protocol):
    """What evaluates the operations of an expression: an object with `add`, `greater`, `logical_and`, … of two
    arguments, `negative` and `logical_not` of one, and `constant` for a number or a string.
    """

    def __getattr__(self, name: str) -> Any:
        """The operation of that name."""


@dataclass(frozen=True)
class Expression:
    """A parsed label: its text, its syntax tree and the columns it reads."""

    text: str
    tree: ast.expr
    columns: tuple[str, ...]

    @property
    def is_column(self) -> bool:
        """Whether the label is just a column, rather than computed from some."""
        return isinstance(self.tree, ast.Name)

    def evaluate(self, columns: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
        """The value of the expression over columns of any kind that `arithmetic` understands."""
        return _evaluate(self.tree, columns, arithmetic)


def parse(text: str) -> Expression:
    """Parses a label: a column's name, or an expression over columns.

    Raises:
      ValueError: the text is not of the grammar; the message says what stood where.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(
            f"expected a column or an expression such as tips > 0.2 * fare, received {text!r} ({error.msg})"
        ) from error
    _check(tree, text)
    names = {node.id: None for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not names:
        raise ValueError(f"expected an expression over at least one column, received {text!r}")
    return Expression(text.strip(), tree, tuple(names))


def _check(node: ast.expr, text: str) -> None:
    children: list[ast.expr]
    match node:
        case ast.BoolOp():
            children = node.values
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            children = [node.left, node.right]
        case ast.UnaryOp() if isinstance(node.op, (ast.USub, ast.Not)):
            children = [node.operand]
        case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _COMPARISON:
            children = [node.left, *node.comparators]
        case ast.Compare() if len(node.ops) > 1:
            raise ValueError(f"a chain of comparisons is not understood in {text!r}; join two of them with `and`")
        case ast.Constant() if isinstance(node.value, (int, float, str)) and not isinstance(node.value, bool):
            children = []
        case ast.Name():
            children = []
        case _:
            raise ValueError(
                f"{ast.unparse(node)!r} is not understood in the label {text!r}: expected columns, numbers, strings, "
                "+ - * /, comparisons, and, or, not"
            )
    for child in children:
        _check(child, text)


def _evaluate(node: ast.expr, columns: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
    def of(child: ast.expr) -> Any:
        return _evaluate(child, columns, arithmetic)

    match node:
        case ast.Name():
            return columns[node.id]
        case ast.Constant():
            return arithmetic.constant(node.value)
        case ast.UnaryOp():
            operation = "negative" if isinstance(node.op, ast.USub) else "logical_not"
            return getattr(arithmetic, operation)(of(node.operand))
        case ast.BinOp():
            return getattr(arithmetic, _ARITHMETIC[type(node.op)])(of(node.left), of(node.right))
        case ast.Compare():
            return getattr(arithmetic, _COMPARISON[type(node.ops[0])])(of(node.left), of(node.comparators[0]))
        case ast.BoolOp():
            join = getattr(arithmetic, _LOGIC[type(node.op)])
            value = of(node.values[0])
            for other in node.values[1:]:
                value = join(value, of(other))
            return value
    raise AssertionError(f"unchecked node {ast.dump(node)}")
