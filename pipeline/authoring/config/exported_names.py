"""Checks the names of features, because the run would fail after the training if the model could not have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from components.base.config_section import Problem
from components.base.names import column_name
from pipeline.authoring.config.root import Config

_INPUT = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
"""Matches the name of a TensorFlow operation. The inputs of signatures are operations."""
_RESERVED = ("self",)
"""Arguments of the function that TensorFlow exports as a signature; inputs cannot have the same name."""
_MAX_LENGTH = 200
"""Maximum number of characters in the name of a feature. It becomes a part of file names, which are limited to 255
bytes."""


def input_problem(name: str) -> str | None:
    """Return the reason why a column cannot be an input of the exported model; None if it can."""
    if _INPUT.fullmatch(name) and name not in _RESERVED:
        return None
    of_table = column_name(name)
    if of_table != name and _INPUT.fullmatch(of_table):
        return f"the exported model cannot have an input {name!r}: the name of a table's column is {of_table!r}"
    return f"the exported model cannot have an input {name!r}: expected a name that does not begin with _, nor self"


def check_names(config: Config) -> Iterator[Problem]:
    """Yield problems with names of columns and features that the exported model cannot have."""
    if config.model.run_fn or config.features.preprocessing_fn:
        return
    columns = config.features.columns_read
    for name in columns:
        if reason := input_problem(name):
            yield Problem(_key(config, name), f"{reason}; rename the column in the data, or remove it here")
    for first, later in _equal_but_for_case(columns):
        yield Problem(
            _key(config, later),
            f"expected names of columns that differ in more than case, received {first!r} and {later!r}, which are one "
            "input of the exported model; rename one of them in the data, or remove it here",
        )
    features = {feature.name: feature for feature in config.features.declared}
    for name, feature in features.items():
        if len(name) > _MAX_LENGTH:
            yield Problem(
                ("features", *feature.key),
                f"expected a feature whose name has at most {_MAX_LENGTH} characters, received {len(name)}; "
                "rename the column in the data, or remove it here",
            )
    if not any(_equal_but_for_case(columns)):
        for first, later in _equal_but_for_case(features):
            message = (
                f"expected names of features that differ in more than case, received {first!r} and {later!r}; "
                "rename one"
            )
            yield Problem(("features", *features[later].key), message)


def _key(config: Config, column: str) -> tuple[str | int, ...]:
    """Return the key at which the config first names a column."""
    if column in config.features.columns:
        return ("features", "columns", column)
    return ("features", *next((feature.key for feature in config.features.declared if column in feature.columns), ()))


def _equal_but_for_case(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of names that differ only in case, as (first name, later name)."""
    first: dict[str, str] = {}
    return [(first[name.lower()], name) for name in names if first.setdefault(name.lower(), name) != name]
