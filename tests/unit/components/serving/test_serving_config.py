"""Tests of the `serving` section."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from components.serving.config import ServingConfig


def test_limit_of_memory_needs_processes() -> None:
    assert ServingConfig(isolate_versions=True, max_version_mb=1024).max_version_mb == 1024
    with pytest.raises(ValidationError, match="max_version_mb: expected isolate_versions: true with a limit"):
        ServingConfig(max_version_mb=1024)
    with pytest.raises(ValidationError, match="greater than or equal to 256"):
        ServingConfig(isolate_versions=True, max_version_mb=10)


def test_check_does_not_depend_on_the_processes_of_serve() -> None:
    isolated = ServingConfig(isolate_versions=True, max_version_mb=1024, examples=3)
    assert isolated.dump_check() == ServingConfig(examples=3).dump_check()
    assert ServingConfig.model_validate_json(isolated.dump_check()).examples == 3
    assert json.loads(isolated.dump_check())["check"] == "server"
