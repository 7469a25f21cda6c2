"""Prepares the config that a run recorded, which contains all fields, to be checked as if a user had written it."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python


def drop_defaults(values: dict[str, Any], section: type[BaseModel]) -> dict[str, Any]:
    """Return the values without the fields that have their default.

    Some checks and nodes distinguish a field that the user wrote from a field that is absent. Sections inside lists
    and mappings keep all fields.

    Args:
      values: Values of a section by key, as `model_dump_json` writes them.
      section: The class of the section.
    """
    # A field that this release does not know is kept, so that the check reports it.
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    written = {}
    for key, value in values.items():
        if key not in fields:
            written[key] = value
            continue
        default = fields[key].get_default(call_default_factory=True)
        if not fields[key].is_required() and value == to_jsonable_python(default, by_alias=True):
            continue
        annotation = fields[key].annotation
        members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        sections = [kind for kind in members if _is_section(kind)]
        is_single = isinstance(value, dict) and len(sections) == 1
        written[key] = drop_defaults(value, sections[0]) if is_single else value
    return written


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
