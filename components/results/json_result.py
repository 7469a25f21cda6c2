"""The base class of results that one component writes to a JSON file and others read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import ClassVar

from typing_extensions import Self


@dataclass(frozen=True)
class JsonResult:
    """A dataclass that is written as JSON.

    Attributes:
      INDENT: Number of spaces that indent the JSON. If None, it is written in one line.
    """

    INDENT: ClassVar[int | None] = 2

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=self.INDENT, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the result of `to_json`."""
        # Imported late: it takes longer than commands that do not read the file may take.
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_json(text)
