"""Names the user typed: the nearest known one to offer, and import paths of their own code."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import AfterValidator

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_IN_FILE = re.compile(r"([^:]+\.py)(?::([A-Za-z_]\w*))?")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Says `; did you mean 'steps'?`, or the known names when none is near and they are few, or nothing."""
    choices = sorted(set(known))
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    if choices and len(choices) <= 20:
        return f"; known are {', '.join(choices)}"
    return ""


_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "Ae", "ø": "o", "Ø": "O", "œ": "oe", "đ": "d", "ł": "l", "Ł": "L"})


def column_name(header: str) -> str:
    """The name of a column as the config, the schema and the model know it: ASCII letters, digits and `_`.

    Accents are dropped (`Größe` is `Grosse`); any other letter is `u` and its code point (`価格` is `u4fa1u683c`); a
    run of anything else is one `_`, but none at either end (`Fare ($)` is `Fare`); a `_` goes before a first digit.
    """
    if _COLUMN.fullmatch(header):
        return header
    letters = unicodedata.normalize("NFKD", header.translate(_LETTERS))
    kept = (letter for letter in letters if not unicodedata.combining(letter))
    spelled = "".join(f"u{ord(one):x}" if not one.isascii() and one.isalnum() else one for one in kept)
    name = re.sub(r"[^A-Za-z0-9_]+", "_", spelled)
    # Underscores that the header has itself stay.
    name = name.removeprefix("" if header.startswith("_") else "_").removesuffix("" if header.endswith("_") else "_")
    return f"_{name}" if name[:1].isdigit() else name


def _function_path(name: str) -> Callable[[str], str]:
    def checked(value: str) -> str:
        if in_file := _IN_FILE.fullmatch(value):
            return f"{in_file[1]}:{in_file[2] or name}"
        if not _IMPORT_PATH.fullmatch(value):
            raise ValueError(
                f"expected an import path such as mypackage.mymodule.{name}, or a file such as path/to/module.py, "
                f"received {value!r}"
            )
        return value

    return checked


PreprocessingFn = Annotated[str, AfterValidator(_function_path("preprocessing_fn"))]
"""Where a function of the user's lives: package.module.function, or path/to/module.py:function; without a function, a
file's is the one that stock TFX asks for."""
RunFn = Annotated[str, AfterValidator(_function_path("run_fn"))]
"""The same."""
Build = Annotated[str, AfterValidator(_function_path("build"))]
"""The same; the name is ours."""
