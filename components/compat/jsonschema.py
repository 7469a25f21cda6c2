"""jsonschema, which Kubernetes' client imports."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

IRI_PARSER = "rfc3987_syntax"


@contextlib.contextmanager
def without_iri_parser() -> Iterator[None]:
    """Hides `rfc3987_syntax` in the block: it compiles a grammar for two seconds at its import.

    jsonschema imports it for its format checker if it is installed, and works without it: nothing here checks the
    formats `iri` and `iri-reference`. There is no switch for that. Checked with jsonschema 4.26.
    """
    sys.modules[IRI_PARSER] = None  # type: ignore[assignment]  # importing it raises ImportError
    try:
        yield
    finally:
        del sys.modules[IRI_PARSER]
