"""Text for a terminal: names from metadata made safe, times, durations, paths and errors."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from components.errors import PipelineError


def plain(value: object, most: int = 200) -> str:
    """A text on one line: control characters are escaped, and more than `most` characters are cut."""
    text = str(value)
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[: most + 1])
    return safe if len(text) <= most else f"{safe[: most - 1]}…"


def clock(seconds: float) -> str:
    """Seconds since the epoch as local date and time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """Seconds as a text such as `3 min 20 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    total = round(seconds)
    return f"{total // 60} min {total % 60} s" if total < 3600 else f"{total // 3600} h {total % 3600 // 60} min"


def print_error(error: PipelineError) -> int:
    """Prints an error's headline, details and remedy; returns its exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), error.headline))
    for line in error.details:
        console.print(Text(f"  - {line}"))
    console.print(Text.assemble(("  remedy: ", "bold"), error.remedy))
    return error.exit_code


def display_path(path: str | Path) -> str:
    """A path for the terminal: relative to the working directory if it is below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def flatten_json(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Flatten JSON values to (path such as `a.b.0`, value as text); JSON inside a text is flattened, too."""
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
    return [each for key, inner in items for each in flatten_json(inner, f"{name}.{key}" if name else str(key))]
