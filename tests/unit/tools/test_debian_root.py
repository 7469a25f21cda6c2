"""Tests of the errors of `make test-current` on machines that cannot create a Debian 13 root.

CI runs the command on a machine that can.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "test_current.sh"
PRESENT = ["bash", "dirname", "env"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a checkout that only contains the script. Its folder `bin` is the whole search path."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    for tool in PRESENT:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "missing")
    return tmp_path


def _program(checkout: Path, name: str, line: str) -> None:
    path = checkout / "bin" / name
    path.write_text(f"#!{shutil.which('bash')}\n{line}\n")
    path.chmod(0o755)


def _run(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script, environment = checkout / "tools" / "test_current.sh", {"PATH": str(checkout / "bin"), **variables}
    return subprocess.run(
        [script, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def _refusal(checkout: Path) -> str:
    done = _run(checkout)
    assert done.returncode == 1
    assert not (checkout / ".cache").exists()
    return done.stderr.splitlines()[-1]


def test_missing_root_privileges_are_an_error(checkout: Path) -> None:
    _program(checkout, "id", "echo 1000")
    assert "sudo make test-current" in _refusal(checkout)


def test_missing_debootstrap_that_cannot_be_installed_is_an_error(checkout: Path) -> None:
    _program(checkout, "id", "echo 0")
    _program(checkout, "apt-get", "exit 100")
    assert "apt-get install debootstrap" in _refusal(checkout)


def test_missing_private_namespaces_are_an_error(checkout: Path) -> None:
    _program(checkout, "id", "echo 0")
    _program(checkout, "debootstrap", "exit 0")
    _program(checkout, "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")
    assert "start it with --privileged" in _refusal(checkout)


@pytest.mark.parametrize(
    ("arguments", "variables", "levels", "folders"),
    [
        ([], {}, "test,rest", "tests"),
        (["test"], {}, "test", "tests"),
        (["test"], {"FOLDERS": "tests/contract tests/e2e"}, "test", "tests/contract tests/e2e"),
    ],
)
def test_existing_environment_with_a_current_python_is_used(
    checkout: Path, arguments: list[str], variables: dict[str, str], levels: str, folders: str
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    # This script stands for Python 3.11 or newer: it exits with 0 when the script checks its version.
    _program(checkout, "python", "")
    (checkout / "bin" / "python").rename(checkout / ".venv" / "bin" / "python")
    _program(checkout, "make", 'echo "$@"')
    done = _run(checkout, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    files = f'$$(grep -rl both_lines {folders} --include="test_*.py")'
    options = f'--levels {levels} -m "both_lines and not slow" {files}'
    assert done.stdout == f"--no-print-directory pytest ARGS={options}\n"
