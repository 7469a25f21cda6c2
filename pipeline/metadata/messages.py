"""Changes the texts of protobuf messages; apart from the texts, so that who reads tables needs no protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message


def change_all(message: Any, change: Callable[[str], str]) -> None:
    """Changes every text in a protobuf message, in place.

    Args:
      message: with messages, lists and maps in it to any depth.
      change: of each text.
    """
    for field, value in message.ListFields():
        if isinstance(value, Message):
            change_all(value, change)
        elif isinstance(value, str):
            setattr(message, field.name, change(value))
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            _change_map(value, field.message_type.fields_by_name["value"], change)
        elif field.message_type is not None:
            for each in value:
                change_all(each, change)
        elif field.type == field.TYPE_STRING:
            value[:] = [change(each) for each in value]


def _change_map(values: Any, field: Any, change: Callable[[str], str]) -> None:
    """A map's keys are texts as well: the names of properties."""
    for key in list(values):
        if field.message_type is None:
            if change(key) != key:
                values[change(key)] = values.pop(key)
            continue
        change_all(values[key], change)
        if change(key) != key:
            values[change(key)].CopyFrom(values[key])
            del values[key]
