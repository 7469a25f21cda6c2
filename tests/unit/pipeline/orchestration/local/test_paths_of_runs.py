"""Tests for folders that a run cannot use, which are rejected before the run starts."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.base.errors import MachineError
from pipeline.authoring.config.runtime import RuntimeConfig
from pipeline.orchestration.local import processes


def test_output_with_pattern_characters_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("run[1]", "what?", "all*", "back\\slash"):
        with pytest.raises(ValidationError, match=r"expected a folder whose path has none of"):
            RuntimeConfig(output=str(tmp_path / name))
    folder = tmp_path / "here[1]"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(ValidationError, match=r"received \[ \] in .*here\[1\]/out"):
        RuntimeConfig()


def test_tmpdir_that_is_too_long_for_a_socket_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(folder: str) -> bool:
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(f"{folder}/pymp-12345678/listener-12345678")
            except FileNotFoundError:
                return True
            except OSError:
                return False
        return True

    longest = "/" + "x" * (processes._MAX_TMPDIR_BYTES - 1)
    assert fits(longest)
    assert not fits(f"{longest}x")
    monkeypatch.setattr(tempfile, "tempdir", f"{longest}x")
    with pytest.raises(MachineError, match="TMPDIR: expected a path of at most 75 bytes"):
        processes.start_server()
