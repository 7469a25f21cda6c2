"""Tests for the modules that the fork server of the nodes imports."""

from __future__ import annotations

from pathlib import Path

from components.base.config_section import Section
from tests.support.programs.imported_modules import modules
from tests.support.servers.in_fork_server import in_child


def test_config_sections_and_tfx_are_imported(tmp_path: Path) -> None:
    order, sections = in_child(tmp_path / "log", modules)
    # Otherwise pydantic would search all imported modules for the source of each section, which takes a second once
    # TensorFlow is imported.
    assert "use_attribute_docstrings" not in Section.model_config
    assert {"components.trainer.config", "components.edge.plan", "components.results.request_schema"} <= set(sections)
    assert "tfx.components" in order
    assert "rfc3987_syntax" not in order
