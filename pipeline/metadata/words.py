"""How times and names out of metadata are written, so that nobody can hide a command in one."""

from __future__ import annotations

from datetime import datetime


def plain(told: object, most: int = 200) -> str:
    """A text on one line: signs that a terminal would obey are written out, and what is too long is cut."""
    text = str(told)
    safe = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text[: most + 1])
    return safe if len(text) <= most else f"{safe[: most - 1]}…"


def clock(seconds: float) -> str:
    """A time, as it is here."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """How long something took."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
