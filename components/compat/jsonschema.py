"""jsonschema, which Kubernetes' client imports."""

from __future__ import annotations

import contextlib
import importlib
import sys

IRI_PARSER = "rfc3987_syntax"


def import_jsonschema() -> None:
    """Import jsonschema without `rfc3987_syntax`, which compiles a grammar for two seconds at its import.

    To be called before the first import of TFX. jsonschema imports the parser for its format checker if it is installed
    and works without it: nothing here checks the formats `iri` and `iri-reference`. There is no switch for that.
    Checked with jsonschema 4.26.
    """
    sys.modules[IRI_PARSER] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("jsonschema")
    finally:
        del sys.modules[IRI_PARSER]
