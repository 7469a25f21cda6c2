"""A grammar for labels and conditions such as `tips > 0.2 * fare`: parsed here, never evaluated as Python.

expression := or-chains of and-chains of `not`, comparisons (== != < <= > >=), `in (…)` and `not in (…)` with numbers or
              'strings', + - * /, unary -, parentheses, numbers, 'strings' and columns
column     := a word other than `and`, `or`, `not` and `in`, or any header in backquotes

A text without operators, quotes or parentheses that is not an expression is the header of a column, such as
`is it spam?`.
Headers become columns by `components.base.names.column_name`.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from components.base.names import column_name

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
_RESERVED = frozenset({"and", "or", "not", "in", "True", "False", "None"})
"""Words that are only columns in backquotes."""
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d[\w.]*|`(?P<header>[^`]*)`|(?P<word>[^\W\d]\w*)""")
_SIGN = re.compile(r"""[-+*/<>=^()'"`]""")
"""Matches signs that a header may only contain in backquotes."""
_SINGLE_EQUALS = re.compile(r"[^<>!=]=[^=]")
_FIRST_PLACEHOLDER = 0x4E00
"""The first CJK letter. `ast` accepts it as a name, and names of columns do not contain CJK letters."""


class Arithmetic(Protocol):
    """Evaluates the operations of an expression.

    It provides functions with two arguments (`add`, `greater`, `logical_and`, …), functions with one argument
    (`negative` and `logical_not`), and `constant`, which converts a number or a string.
    """

    def __getattr__(self, name: str) -> Any:
        """Return the function with this name."""


@dataclass(frozen=True)
class Expression:
    """A parsed label or condition: its text, its syntax tree and the names of its columns."""

    text: str
    tree: ast.expr
    columns: tuple[str, ...]

    @property
    def is_column(self) -> bool:
        """Whether the label is a column, rather than computed from columns."""
        return isinstance(self.tree, ast.Name)

    def evaluate(self, columns: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
        """Evaluate the expression.

        Args:
          columns: Name → column, of any type that `arithmetic` accepts.
          arithmetic: Functions of the operations.

        Returns:
          The result of the outermost operation.
        """
        return _evaluate(self.tree, columns, arithmetic)


def parse(text: str) -> Expression:
    """Parse a label: a column's name or header, or an expression over columns.

    Raises:
      ValueError: If the text does not match the grammar. The message names the part that does not match.
    """
    text = text.strip()
    try:
        tree = _parse_tree(text)
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"expected fewer nested operations, received {text[:60]!r}…") from error
    except ValueError:
        if _SIGN.search(text) or not (name := column_name(text)):
            raise
        return Expression(text, ast.Name(name), (name,))
    names = {node.id: None for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not names:
        raise ValueError(f"expected an expression over at least one column, received {text!r}")
    return Expression(text, tree, tuple(names))


@dataclass(frozen=True)
class Label:
    """A label that the config declares.

    Attributes:
      text: A column (or its header), or an expression; empty if the task anomaly does not have a label.
      name: Name of the label in `data.labels`; empty for `data.label`.
      event: A column (or its header), or an expression, that is 1 if the time of `text` is the time of an event, and 0
        if the row was observed without an event until then; empty except for the task survival.
    """

    text: str
    name: str = ""
    event: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the config that declares the label."""
        return ("data", "labels", self.name) if self.name else ("data", "label")

    @property
    def expression(self) -> Expression:
        """The parsed column or expression.

        Raises:
          ValueError: If the text is not an expression.
        """
        return parse(self.text) if self.text else Expression("", ast.Constant(0), ())

    @property
    def event_label(self) -> EventLabel:
        """The event as a label of its own."""
        return EventLabel(self.event)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the label is computed from, with the columns of the event.

        Raises:
          ValueError: If a text is not an expression.
        """
        event = self.event_label.expression.columns if self.event else ()
        return tuple(dict.fromkeys((*self.expression.columns, *event)))

    def __str__(self) -> str:
        """Return the key for error messages, as in `data.labels.click`."""
        return ".".join(self.key)

    def add_name(self, base: str) -> str:
        """Return the name of a file, column or output of this label: `base` and the name of the label, if any."""
        return f"{base}_{self.name}" if self.name else base


class EventLabel(Label):
    """The event of a survival task."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the config that declares the event."""
        return ("data", "event")


def parse_condition(text: str) -> tuple[Expression, frozenset[str]]:
    """Parse a condition, such as `fare > 0 and payment in ('Cash', 'Card')`.

    Args:
      text: The condition: comparisons, joined by `and`, `or` and `not`; or a column of 0 and 1.

    Returns:
      The expression, and the columns that are compared with strings. All other columns are numbers.

    Raises:
      ValueError: If the text is no condition, or compares a column with a string and with a number.
    """
    parsed = parse(text)
    uses: dict[str, set[str]] = {"number": set(), "text": set(), "condition": set()}
    kind = _find_uses(parsed.tree, uses)
    if kind is None and isinstance(parsed.tree, ast.Name):
        uses["condition"].add(parsed.tree.id)
    elif kind != "condition":
        raise ValueError(f"expected a condition such as fare > 0, received {text!r}")
    if both := sorted(uses["text"] & (uses["number"] | uses["condition"])):
        raise ValueError(f"expected either numbers or strings beside {both[0]!r}, received both in {text!r}")
    return parsed, frozenset(uses["text"])


def _find_uses(node: ast.expr, uses: dict[str, set[str]]) -> str | None:
    """Return what a part of a condition is: number, text, condition, or None for a column.

    Args:
      node: A checked part.
      uses: Use → columns, which this adds the columns below the node to.

    Raises:
      ValueError: If the types of an operation's operands do not fit.
    """
    match node:
        case ast.Constant():
            return "text" if isinstance(node.value, str) else "number"
        case ast.Compare():
            operands = [node.left, *node.comparators]
            found = [_find_uses(operand, uses) for operand in operands]
            use, result = ("text" if "text" in found else "number"), "condition"
        case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
            found = [_find_uses(operand, uses) for operand in operands]
            use = result = "number"
        case ast.BoolOp() | ast.UnaryOp():
            operands = node.values if isinstance(node, ast.BoolOp) else [node.operand]
            found = [_find_uses(operand, uses) for operand in operands]
            use = result = "condition"
        case _:
            return None
    if unfit := [kind for kind in found if kind not in (None, use)]:
        raise ValueError(f"expected a {use}, received a {unfit[0]} in {ast.unparse(node)!r}")
    uses[use].update(operand.id for operand in operands if isinstance(operand, ast.Name))
    return result


def column_text(name: str) -> str:
    """Return a column's name for an expression, in backquotes if the name is a word of the grammar."""
    return f"`{name}`" if name in _RESERVED else name


def _parse_tree(text: str) -> ast.expr:
    """Return the checked syntax tree, with names of columns.

    Python's parser does not accept keywords and headers as names, so they are replaced by placeholders before parsing.
    """
    names: list[str] = []

    def replace_token(token: re.Match[str]) -> str:
        if token["header"] is not None and (name := column_name(token["header"])):
            names.append(name)
        elif token["word"] is None or token["word"] in _RESERVED:
            return token[0]
        elif not keyword.iskeyword(token["word"]):
            return column_name(token["word"])
        else:
            names.append(token["word"])
        # Separate the placeholder from adjacent text, so that `Fare ($)`x does not become a name.
        return f" {chr(_FIRST_PLACEHOLDER + len(names) - 1)} "

    try:
        tree = ast.parse(_TOKEN.sub(replace_token, text).strip(), mode="eval").body
    except SyntaxError as error:
        why = "equality is written ==" if _SINGLE_EQUALS.search(text) else error.msg
        raise _invalid_expression(text, why) from error
    placeholders = {chr(_FIRST_PLACEHOLDER + number): name for number, name in enumerate(names)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not node.id.isascii():
            # Python accepts names with characters that are not in words, such as combining characters.
            if node.id not in placeholders:
                raise _invalid_expression(text, f"unexpected name {node.id!r}")
            node.id = placeholders[node.id]
    tree = cast(ast.expr, _Membership().visit(tree))
    _check(tree, text)
    return tree


def _invalid_expression(text: str, why: str) -> ValueError:
    return ValueError(
        f"expected a column or an expression such as tips > 0.2 * fare, received {text!r} ({why}); put a column whose "
        "header has other characters in backquotes, as in `Fare ($)` > 10"
    )


class _Membership(ast.NodeTransformer):
    """Replaces `x in (a, b)` by `x == a or x == b`, and `x not in (a, b)` by its negation."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Replace one comparison; leave others as they are."""
        node.left = self.visit(node.left)
        if len(node.ops) > 1 or not isinstance(node.ops[0], (ast.In, ast.NotIn)):
            return node
        (members,) = node.comparators
        values = members.elts if isinstance(members, (ast.Tuple, ast.List)) else [members]
        if not values or not all(isinstance(_strip_sign(value), ast.Constant) for value in values):
            return node
        equal: list[ast.expr] = [ast.Compare(node.left, [ast.Eq()], [value]) for value in values]
        found = equal[0] if len(equal) == 1 else ast.BoolOp(ast.Or(), equal)
        return found if isinstance(node.ops[0], ast.In) else ast.UnaryOp(ast.Not(), found)


def _strip_sign(node: ast.expr) -> ast.expr:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node


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
            raise ValueError(f"expected no chain of comparisons, received {text!r}; join two comparisons with `and`")
        case ast.Constant() if isinstance(node.value, (int, float, str)) and not isinstance(node.value, bool):
            children = []
        case ast.Name():
            children = []
        case _:
            raise ValueError(
                f"{text!r}: expected columns, numbers, strings, + - * /, comparisons, in (…), and, or, not, "
                f"received {ast.unparse(node)!r}"
            )
    for child in children:
        _check(child, text)


def _evaluate(node: ast.expr, columns: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
    def value_of(child: ast.expr) -> Any:
        return _evaluate(child, columns, arithmetic)

    match node:
        case ast.Name():
            return columns[node.id]
        case ast.Constant():
            return arithmetic.constant(node.value)
        case ast.UnaryOp():
            operation = "negative" if isinstance(node.op, ast.USub) else "logical_not"
            return getattr(arithmetic, operation)(value_of(node.operand))
        case ast.BinOp():
            return getattr(arithmetic, _ARITHMETIC[type(node.op)])(value_of(node.left), value_of(node.right))
        case ast.Compare():
            return getattr(arithmetic, _COMPARISON[type(node.ops[0])])(
                value_of(node.left), value_of(node.comparators[0])
            )
        case ast.BoolOp():
            join = getattr(arithmetic, _LOGIC[type(node.op)])
            value = value_of(node.values[0])
            for operand in node.values[1:]:
                value = join(value, value_of(operand))
            return value
    raise AssertionError(f"unchecked node {ast.dump(node)}")
