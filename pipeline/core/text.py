"""Formatting of text for a terminal: untrusted names, times, durations, paths and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from components.base.errors import PipelineError


def plain(value: object, most: int = 200) -> str:
    """Return a value as printable text on one line.

    Args:
      value: The value. Control characters in its text, which could manipulate the terminal, are escaped.
      most: Maximum number of characters. A longer text is truncated and ends with an ellipsis.
    """
    text = str(value)
    characters = text[: most + 1]
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in characters)
    return safe if len(text) <= most else f"{safe[: most - 1]}…"


def format_join(join: Mapping[str, Any]) -> str:
    """Format the counts of a join, as in `joined zones.csv: 99 of 100 rows have a match`."""
    paths = ", ".join(plain(display_path(path)) for path in join["path"])
    return f"joined {paths}: {join['matched']:,} of {join['rows']:,} rows have a match"


def describe_approval(run: str) -> str:
    """Return who has to do what before the model of a run is pushed (`push.approval: required`)."""
    return f"it waits for an approval: python runner.py models approve {plain(run)} --by NAME --note TEXT"


def format_time(seconds: float) -> str:
    """Format seconds since the epoch as local date and time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_time_with_zone(seconds: float) -> str:
    """Format seconds since the epoch as local date, time and time zone, as in `2026-11-29 13:05:00 CET`."""
    return f"{format_time(seconds)} {datetime.fromtimestamp(seconds).astimezone():%Z}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds as text, for example `3 min 20 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    total = round(seconds)
    return f"{total // 60} min {total % 60} s" if total < 3600 else f"{total // 3600} h {total % 3600 // 60} min"


def print_error(error: PipelineError) -> int:
    """Print the headline, the details and the remedy of an error to stderr, and return its exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error.headline))
    for line in error.details:
        console.print(Text(f"  - {line}"))
    console.print(Text.assemble(("  remedy: ", "bold"), error.remedy))
    return error.exit_code


def display_path(path: str | Path) -> str:
    """Return the path relative to the working directory, or unchanged if it is outside of the working directory."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def flatten_json(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Flatten JSON values to pairs of path and text.

    Args:
      value: Plain JSON values. Text that contains a JSON object or list is parsed and flattened as well.
      name: Prefix of the paths.

    Returns:
      Pairs such as `("a.b.0", "1")`. An empty object or list is one pair.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except ValueError:
            return [(name, value)]
    items = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) and value else None
    )
    if items is None or not value:
        return [(name, value if isinstance(value, str) else json.dumps(value))]
    return [pair for key, inner in items for pair in flatten_json(inner, f"{name}.{key}" if name else str(key))]
