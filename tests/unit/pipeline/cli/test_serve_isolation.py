"""Tests of the options of `runner.py serve` for versions in processes of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.support.data import people


def commands_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: commands.append(command))
    main(["serve", *arguments])
    [command] = commands
    return command


def test_config_and_option_select_a_process_per_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tmp_path / "pushed" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    serving = {"check": "none", "isolate_versions": True, "max_version_mb": 512}
    config = people.project(tmp_path, push={"directory": str(tmp_path / "pushed")}, serving=serving)
    command = commands_of(monkeypatch, "--config", str(config))
    assert {"--isolate_versions", f"--max_version_bytes={512 << 20}"} <= set(command)
    together = commands_of(monkeypatch, "--models", str(tmp_path / "pushed"))
    assert "--isolate_versions" not in together
    alone = commands_of(monkeypatch, "--models", str(tmp_path / "pushed"), "--isolate-versions")
    assert set(alone) - set(together) == {"--isolate_versions"}
