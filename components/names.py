"""Names the user typed: the nearest known one to offer, and import paths of their own code."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Says `; did you mean 'steps'?`, or the known names when none is near and they are few, or nothing."""
    choices = sorted(set(known))
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    if choices and len(choices) <= 20:
        return f"; known are {', '.join(choices)}"
    return ""


def _import_path(value: str) -> str:
    if not _IMPORT_PATH.fullmatch(value):
        raise ValueError(f"expected an import path such as mypackage.mymodule.preprocessing_fn, received {value!r}")
    return value


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""Where a function of the user's lives: package.module.function."""
