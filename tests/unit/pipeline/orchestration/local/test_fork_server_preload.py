"""What the nodes' server imports, and in which order."""

from __future__ import annotations

from pathlib import Path

from imported_modules import modules
from in_fork_server import in_child


def test_sections_find_their_docstrings_while_modules_are_few(tmp_path: Path) -> None:
    order, sections = in_child(tmp_path / "log", modules)
    assert not {each for each in sections if order.index(each) > order.index("tensorflow")}
    assert "components.trainer.config" in sections
    assert "tfx.components" in order
    assert "rfc3987_syntax" not in order
