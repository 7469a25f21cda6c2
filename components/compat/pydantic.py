"""A switch of pydantic, which reads the metadata of all installed packages when a process defines its first model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def without_plugins() -> Iterator[None]:
    """Define models without pydantic's plugins, for example the sections of a config.

    pydantic searches for plugins in the entry points of all packages, which takes up to 26 ms. It reads the variable
    whenever a model is defined, so that models of user code that are defined later have their plugins. Checked with
    pydantic 2.10 to 2.14.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
