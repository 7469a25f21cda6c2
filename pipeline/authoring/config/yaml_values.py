"""Parses YAML to plain values with the line of every key. Limits size, depth and the number of values."""

from __future__ import annotations

from typing import Any

import yaml

Key = tuple["str | int", ...]

MAX_BYTES = 1_000_000
_MAX_DEPTH = 50
_MAX_VALUES = 200_000
"""Maximum number of values, including the values that aliases repeat. Without a limit, nine lines with lists of ten
aliases would expand to a billion values."""
_MAX_INTEGER = 2**63 - 1
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader of libyaml if PyYAML was built with it, which is ten times as fast."""


def parse(text: str) -> tuple[Any, dict[Key, int]]:
    """Parse a document.

    Args:
      text: Text of the document.

    Returns:
      The value, which is None for an empty document, and key → line, from 1, for all mappings, lists and values.

    Raises:
      yaml.MarkedYAMLError: If the text is not valid YAML, repeats a key, or is nested too deeply or too large.
    """
    if character := yaml.reader.Reader.NON_PRINTABLE.search(text):
        mark = yaml.Mark("", 0, text.count("\n", 0, character.start()), 0, None, 0)
        raise yaml.MarkedYAMLError(problem=f"unexpected character {character[0]!r}", problem_mark=mark)
    # Limit the depth here, because the composer is recursive and would exceed the stack. The parser is not recursive.
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _too_deep(event)
    tree = yaml.compose(text, Loader=_LOADER)
    values = _Values()
    return (None if tree is None else values.plain(tree, ())), values.lines


class _Values:
    """Converts nodes of YAML to plain values.

    Attributes:
      lines: Key → line, from 1, for all converted nodes.
    """

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {}
        self._scalars = yaml.SafeLoader("")
        self._count = 0

    def plain(self, node: yaml.Node, key: Key) -> Any:
        """Convert a node, and record its lines.

        Args:
          node: Node to convert.
          key: Key of the node in the document.
        """
        self._count += 1
        if self._count > _MAX_VALUES:
            raise _error(f"expected at most {_MAX_VALUES:,} values, received more: aliases repeat them", node)
        # A node that contains an alias of itself would be converted forever.
        if len(key) > _MAX_DEPTH:
            raise _too_deep(node)
        self.lines.setdefault(key, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*key, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        """Convert a mapping, and refuse repeated keys. PyYAML would silently keep the last value."""
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error("expected a text as the key, received a list or a mapping", key_node)
            name = self._scalar(key_node)
            # YAML 1.1 reads keys such as `1`, `on` and `2024-01-01` as other types. Keys of a config are always texts.
            name = name if isinstance(name, str) else key_node.value
            if name in values:
                raise _error(f"the key {name!r} appears twice", key_node)
            inner = (*key, name)
            self.lines[inner] = key_node.start_mark.line + 1
            values[name] = self.plain(value_node, inner)
        return values

    def _scalar(self, node: yaml.Node) -> Any:
        """Convert a scalar, and refuse values that files, databases or protobuf messages cannot contain."""
        try:
            value = self._scalars.construct_object(node)
        except ValueError as error:
            raise _error(f"{node.value!r} is no value of its type: {error}", node) from error
        if isinstance(value, str) and "\0" in value:
            raise _error("expected a text without NUL", node)
        if isinstance(value, int) and abs(value) > _MAX_INTEGER:
            raise _error("expected a number of at most 63 bits", node)
        return value


def _error(problem: str, where: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = where.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _too_deep(where: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    return _error(f"expected at most {_MAX_DEPTH} levels, received more", where)
