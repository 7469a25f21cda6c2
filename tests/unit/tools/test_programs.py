"""Tests of the list of programs that tests use in addition to .venv, on machines that lack some of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import programs

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("bash", "dirname", "env", "grep")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a checkout on a machine without the programs. Its folder `bin` is the whole search path."""
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setattr(programs, "_OTHER_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def install(folder: Path, name: str, line: str = "") -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def test_every_program_of_the_list_can_be_missing(bare: Path) -> None:
    assert programs.missing() == list(programs.read_programs())
    for name, program in programs.read_programs().items():
        if program.source.startswith("environment:"):
            environment = program.source.removeprefix("environment:")
            # One environment is an extra of the project, so its lock is in the root folder.
            assert (ROOT / "tools" / f"{environment}.txt").is_file() or (
                ROOT / f"requirements-{environment}.txt"
            ).is_file()
            install(bare / ".cache" / environment / "bin", name)
        else:
            install(bare / "bin", program.names[-1])
    assert programs.missing() == []


def test_missing_program_skips_a_test_locally_and_fails_it_in_ci(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="haproxy is not installed; `make programs` installs it"):
        programs.find("haproxy")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="haproxy is not installed"):
        programs.find("haproxy")
    install(bare / "bin", "haproxy")
    assert programs.find("haproxy") == str(bare / "bin" / "haproxy")


@pytest.mark.extended
def test_skipped_tests_are_listed_with_reason_and_remedy(tmp_path: Path) -> None:
    test = "tests/unit/deploy/test_deploy.py::test_alert_rules_pass_their_tests"
    # promtool is only searched on PATH, so an empty PATH makes it missing.
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]

    def run(**variables: str) -> tuple[int, list[str]]:
        process = subprocess.run(
            command, cwd=ROOT, env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        return process.returncode, process.stdout.splitlines()

    code, lines = run()
    assert code == 0, lines
    missing = [line for line in lines if line.startswith("missing programs: ") and "promtool" in line]
    assert len(missing) == 2, "in the header, and at the end"
    assert all(line.endswith("; to install them: make programs") for line in missing)
    assert "    1  promtool is not installed; `make programs` installs it" in lines
    code, lines = run(CI="true")
    assert code == 1
    assert any("promtool is not installed" in line for line in lines)


@pytest.mark.parametrize("present", [(), ("chromium-browser", "haproxy")])
def test_missing_packages_are_installed(tmp_path: Path, present: tuple[str, ...]) -> None:
    (tmp_path / "tools").mkdir()
    for file in ("programs.sh", "programs.txt"):
        shutil.copy(ROOT / "tools" / file, tmp_path / "tools")
    for tool in TOOLS:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "missing")
    install(tmp_path / "bin", "id", "echo 0")
    install(tmp_path / "bin", "apt-get", f'echo "$@" >>{tmp_path}/apt-calls')
    for name in present:
        install(tmp_path / "bin", name)
    # The script also finds programs in /usr/sbin and in PostgreSQL's folder, so only check programs elsewhere.
    subprocess.run([tmp_path / "tools" / "programs.sh", "packages"], env={"PATH": str(tmp_path / "bin")}, check=True)
    update, packages_line = (tmp_path / "apt-calls").read_text().splitlines()
    assert update.startswith("update")
    packages = packages_line.split()
    assert "nghttp2-client" in packages
    assert ("chromium" in packages) == (not present)
