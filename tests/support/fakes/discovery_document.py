"""Checks JSON against a discovery document, in which Google describes the messages of an API.

Google's clients ship these documents: https://developers.google.com/discovery/v1/reference/apis
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_INTEGER = re.compile(r"-?[0-9]+")


def find_violations(value: Any, message: str, document: Mapping[str, Any]) -> list[str]:
    """Return where a value differs from a message: unknown fields, other types, and unknown values of enums.

    Args:
      value: Parsed JSON.
      message: Name of the message, such as Job.
      document: Parsed discovery document.
    """
    return list(_compare(value, {"$ref": message}, document["schemas"], message))


def _compare(value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any], where: str) -> Iterator[str]:
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    match schema["type"], value:
        case "any", _:
            return
        case "object", dict():
            fields, further = schema.get("properties", {}), schema.get("additionalProperties")
            for name, entry in value.items():
                if name in fields or further:
                    yield from _compare(entry, fields.get(name, further), schemas, f"{where}.{name}")
                else:
                    yield f"{where}: expected a field of {sorted(fields)}, received {name!r}"
        case "array", list():
            for number, entry in enumerate(value):
                yield from _compare(entry, schema["items"], schemas, f"{where}[{number}]")
        case kind, _:
            if not _is_scalar(value, kind, schema):
                yield f"{where}: expected {schema.get('enum') or schema.get('format') or kind}, received {value!r}"


def _is_scalar(value: Any, kind: str, schema: Mapping[str, Any]) -> bool:
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if names := schema.get("enum"):
        # JSON of protocol buffers may contain the number of an enum's value.
        return value in names or (isinstance(value, int) and 0 <= value < len(names))
    if schema.get("format") in ("int32", "uint32", "int64", "uint64"):
        # 64-bit integers are strings, because JSON's numbers are floats.
        return isinstance(value, int) or (isinstance(value, str) and _INTEGER.fullmatch(value) is not None)
    accepted = {"string": str, "number": (int, float), "integer": int}.get(kind)
    return accepted is not None and isinstance(value, accepted)
