"""Tests for files of orchestrators, which are written for one root folder and read with another root folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from tfx.proto.orchestration import pipeline_pb2

from pipeline.authoring.config import load
from pipeline.orchestration import compiler
from pipeline.orchestration.root_folder import ROOT, ir_with_root, ir_without_root, without_root
from tests.support.data import people


def parse_ir(ir: bytes) -> dict[str, Any]:
    """Parse a pipeline for a comparison. The bytes cannot be compared, because the order of map entries varies."""
    return json_format.MessageToDict(pipeline_pb2.Pipeline.FromString(ir))


def test_root_is_replaced_only_at_path_boundaries():
    root = Path("/srv/some")
    nested = json.dumps({"base": "/srv/some/data"})
    replaced = without_root([nested, "/srv/some", "/srv/something", "/mnt/srv/some", "gs://srv/some/x", 3], root)
    expected = [json.dumps({"base": f"{ROOT}/data"}), ROOT, "/srv/something", "/mnt/srv/some", "gs://srv/some/x", 3]
    assert replaced == expected
    assert without_root({"path": "/srv/some/data"}, root, ".") == {"path": "./data"}
    assert without_root(json.dumps("/srv/größe/data"), Path("/srv/größe")) == json.dumps(f"{ROOT}/data")


def test_moved_pipeline_equals_a_pipeline_compiled_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiled = []
    for name in ("here", "there"):
        root = tmp_path / name
        root.mkdir()
        monkeypatch.chdir(root)
        people.project(root)
        config = load("people.yaml", ["data.path=people.csv", "runtime.output=out"]).config
        compiled.append((compiler.compile_pipeline(config), root))
    (ir_here, here), (ir_there, there) = compiled
    portable = ir_without_root(ir_here, here)
    assert (str(here).encode() in ir_here, str(here).encode() in portable) == (True, False)
    assert parse_ir(ir_with_root(portable, there)) == parse_ir(ir_there)
    assert ir_with_root(ir_here, there) is ir_here
