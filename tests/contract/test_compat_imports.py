"""Imports work without the work that components/compat/imports.py avoids, and still need this module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_JSONSCHEMA = """
import sys
from components.compat.imports import IRI_PARSER, speed_up_imports
speed_up_imports()
import jsonschema
import kubernetes
jsonschema.validate({"url": "http://a"}, {"properties": {"url": {"type": "string", "format": "iri"}}})
assert IRI_PARSER not in sys.modules, "the parser was imported"
"""
_GOOGLE = """
import importlib.metadata
from components.compat.imports import speed_up_imports
expected = importlib.metadata.packages_distributions()
speed_up_imports()
speed_up_imports()
import google.cloud.bigquery
import google.cloud.pubsub_v1
assert importlib.metadata.packages_distributions() == expected
print(importlib.metadata.packages_distributions.cache_info())
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_jsonschema_works_without_the_iri_parser() -> None:
    run(_JSONSCHEMA)


def test_clients_of_google_read_the_installed_packages_once() -> None:
    assert "misses=1," in run(_GOOGLE)


@pytest.mark.extended
def test_jsonschema_imports_the_iri_parser_where_it_is_installed() -> None:
    pytest.importorskip("rfc3987_syntax")
    remedy = "jsonschema no longer imports rfc3987_syntax by itself: remove _import_jsonschema"
    run(f"import sys, jsonschema; assert 'rfc3987_syntax' in sys.modules, {remedy!r}")
