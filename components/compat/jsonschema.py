"""A faster import of jsonschema, which the Kubernetes client imports."""

from __future__ import annotations

import contextlib
import importlib
import sys

IRI_PARSER = "rfc3987_syntax"


def import_jsonschema() -> None:
    """Import jsonschema without `rfc3987_syntax`, which compiles a grammar for two seconds when it is imported.

    Call it before TFX is first imported. jsonschema imports the parser for its format checker if it is installed, and
    does not have a switch to turn this off. It also works without the parser, because this project does not check the
    formats `iri` and `iri-reference`. Checked with jsonschema 4.26.
    """
    sys.modules[IRI_PARSER] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("jsonschema")
    finally:
        del sys.modules[IRI_PARSER]
