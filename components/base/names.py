"""Names in the user's input: suggestions for misspelled names, column names, and import paths of user code."""

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


def did_you_mean(name: object, valid: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name.

    Args:
      name: The name that the user typed.
      valid: The names that exist.

    Returns:
      `; did you mean 'steps'?` if a valid name is similar. Otherwise a list of the valid names, or "" if there are more
      than 20 of them.
    """
    choices = sorted(set(valid))
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    if choices and len(choices) <= 20:
        return f"; expected one of {', '.join(choices)}"
    return ""


_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "Ae", "ø": "o", "Ø": "O", "œ": "oe", "đ": "d", "ł": "l", "Ł": "L"})


def column_name(header: str) -> str:
    """Convert a header to the name of the column in the config, the schema and the model.

    The name consists of ASCII letters, digits and `_`. Accents are dropped (`Größe` becomes `Grosse`). Any other letter
    becomes `u` and its code point (`価格` becomes `u4fa1u683c`). A sequence of other characters becomes a single `_`,
    or is dropped at the beginning and the end (`Fare ($)` becomes `Fare`). The prefix `x` is added to a name that
    begins with a digit. It is not `_`, because the inputs of an exported model must not begin with `_`.
    """
    if _COLUMN.fullmatch(header):
        return header
    letters = unicodedata.normalize("NFKD", header.translate(_LETTERS))
    plain = (letter for letter in letters if not unicodedata.combining(letter))
    ascii_only = "".join(
        f"u{ord(letter):x}" if not letter.isascii() and letter.isalnum() else letter for letter in plain
    )
    name = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_only)
    # Keep underscores that are part of the header.
    name = name.removeprefix("" if header.startswith("_") else "_").removesuffix("" if header.endswith("_") else "_")
    return f"x{name}" if name[:1].isdigit() else name


def _function_path(name: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if in_file := _IN_FILE.fullmatch(value):
            return f"{in_file[1]}:{in_file[2] or name}"
        if not _IMPORT_PATH.fullmatch(value):
            raise ValueError(
                f"expected an import path such as mypackage.mymodule.{name}, or a file such as path/to/module.py, "
                f"received {value!r}"
            )
        return value

    return check


def _import_path(value: str) -> str:
    if not _IMPORT_PATH.fullmatch(value):
        raise ValueError(f"expected an import path such as my_package.MyComponent, received {value!r}")
    return value


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""Import path of a class or function in a package or module."""
PreprocessingFn = Annotated[str, AfterValidator(_function_path("preprocessing_fn"))]
"""Import path of a user function, as package.module.function or path/to/module.py:function. If only a file is given,
the name that stock TFX expects is appended."""
RunFn = Annotated[str, AfterValidator(_function_path("run_fn"))]
"""Import path of the Trainer's run_fn, in the same format as PreprocessingFn."""
Build = Annotated[str, AfterValidator(_function_path("build"))]
"""Import path of a function that builds the model, in the same format as PreprocessingFn. Stock TFX does not have such
a function."""
Train = Annotated[str, AfterValidator(_function_path("train"))]
"""Import path of a function that trains the model, in the same format as PreprocessingFn."""
