"""Faster imports of packages that TFX and Beam import."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import sys

IRI_PARSER = "rfc3987_syntax"


def speed_up_imports() -> None:
    """Avoid work at the import of jsonschema and of Google's clients; call it before TFX or Beam is first imported."""
    _import_jsonschema()
    _cache_distributions()


def _import_jsonschema() -> None:
    """Import jsonschema without `rfc3987_syntax`, which compiles a grammar for two seconds when it is imported.

    jsonschema, which the Kubernetes client imports, imports the parser for its format checker if it is installed, and
    does not have a switch to turn this off. It also works without the parser, because this project does not check the
    formats `iri` and `iri-reference`. Checked with jsonschema 4.26.
    """
    sys.modules[IRI_PARSER] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("jsonschema")
    finally:
        del sys.modules[IRI_PARSER]


def _cache_distributions() -> None:
    """Let Google's clients read the metadata of all installed packages once in a process.

    To name the package in a warning that they may issue, google.api_core and each of its clients call
    `importlib.metadata.packages_distributions`, which takes 0.2 s in an environment with TFX. Importing Beam and TFX
    calls it five times. Checked with google-api-core 2.29.
    """
    read = importlib.metadata.packages_distributions
    if not hasattr(read, "cache_info"):
        importlib.metadata.packages_distributions = functools.cache(read)
