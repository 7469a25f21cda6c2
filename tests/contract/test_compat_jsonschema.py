"""jsonschema works without the parser that this project hides from it, and imports the parser if it can."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_IMPORT = """
import sys
from components.compat.jsonschema import IRI_PARSER, import_jsonschema
import_jsonschema()
import jsonschema
import kubernetes
jsonschema.validate({"url": "http://a"}, {"properties": {"url": {"type": "string", "format": "iri"}}})
assert IRI_PARSER not in sys.modules, "the parser was imported"
"""
_REMEDY = "jsonschema no longer imports rfc3987_syntax by itself: remove components/compat/jsonschema.py"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_jsonschema_works_without_the_iri_parser() -> None:
    ended = run(_IMPORT)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.extended
def test_jsonschema_imports_the_iri_parser_where_it_is_installed() -> None:
    pytest.importorskip("rfc3987_syntax")
    ended = run("import sys, jsonschema; sys.exit('rfc3987_syntax' not in sys.modules)")
    assert ended.returncode == 0, _REMEDY
