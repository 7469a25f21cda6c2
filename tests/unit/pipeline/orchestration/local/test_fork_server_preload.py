"""Tests for the modules that the fork server of the nodes imports, and for their order."""

from __future__ import annotations

from pathlib import Path

from imported_modules import modules
from in_fork_server import in_child


def test_config_sections_are_imported_before_tensorflow(tmp_path: Path) -> None:
    # Pydantic searches the source of a section for docstrings, which is slow when many modules are imported.
    order, sections = in_child(tmp_path / "log", modules)
    assert not {section for section in sections if order.index(section) > order.index("tensorflow")}
    assert "components.trainer.config" in sections
    assert "tfx.components" in order
    assert "rfc3987_syntax" not in order
