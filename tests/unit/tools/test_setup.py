"""Tests that run the set-up script in temporary folders with controlled search paths, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
REAL = os.path.realpath(sys.executable)
REAL_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
TOOLS = ["awk", "bash", "cat", "cut", "dirname", "env", "flock", "getconf", "head", "ln", "mkdir", "mv", "realpath"]
TOOLS += ["rm", "sed", "sha256sum", "sort", "timeout", "uname"]


class Machine:
    """A simulated machine with a checkout of the script, a controlled search path, and a home folder."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.bin = folder / "bin"
        self.home = folder / "home"
        (self.checkout / "tools").mkdir(parents=True)
        self.bin.mkdir()
        self.home.mkdir()
        shutil.copy(REPOSITORY / "tools" / "setup.sh", self.checkout / "tools")
        (self.checkout / "requirements.txt").write_text("one==1\n")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or "missing")

    def script(self, path: Path, *lines: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text("\n".join([f"#!{shutil.which('bash')}", *lines, ""]))
        path.chmod(0o755)
        return path

    def python(self, path: Path, version: str, kind: str = "plain", headers: str = "headers") -> Path:
        """Create a fake interpreter that only answers the probe of the script, and return its path."""
        return self.script(path, f"echo {version} {kind} {headers} {path}")

    def glibc(self, version: str) -> None:
        self.script(self.bin / "getconf", f"echo glibc {version}")

    def pyenv(self, version: str) -> Path:
        return self.home / ".pyenv" / "versions" / version / "bin" / f"python{version.rpartition('.')[0]}"

    def run(self, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "tools" / "setup.sh", *options],
            env={"PATH": str(self.bin), "HOME": str(self.home), **environ},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def choose(self, **environ: str) -> tuple[str, str]:
        """Return the path of the interpreter that the script would choose, and the reason."""
        done = self.run("--choose", **environ)
        assert done.returncode == 0, done.stderr
        path, why = done.stdout.splitlines()
        return path, why

    def get_refusal(self, *options: str, **environ: str) -> str:
        """Run the script, which must fail, and return its error message of one line."""
        done = self.run(*options, **environ)
        assert done.returncode == 1
        assert done.stdout == ""
        (sentence,) = done.stderr.splitlines()
        return sentence


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestChoice:
    def test_interpreter_on_path_is_chosen(self, machine: Machine) -> None:
        (machine.bin / f"python{REAL_VERSION}").symlink_to(REAL)
        path, why = machine.choose()
        assert path == REAL
        assert f"Python {REAL_VERSION}" in why

    def test_failing_shim_is_skipped_and_the_version_of_pyenv_chosen(self, machine: Machine) -> None:
        machine.script(machine.bin / f"python{REAL_VERSION}", "echo 'pyenv: command not found' >&2", "exit 127")
        real = machine.pyenv(f"{REAL_VERSION}.1")
        real.parent.mkdir(parents=True)
        real.symlink_to(REAL)
        assert machine.choose()[0] == REAL

    def test_interpreter_of_a_virtual_environment_is_resolved(self, machine: Machine, tmp_path: Path) -> None:
        subprocess.run([REAL, "-m", "venv", "--without-pip", tmp_path / "theirs"], check=True)
        assert machine.choose(PATH=f"{tmp_path}/theirs/bin:{machine.bin}")[0] == REAL

    def test_environment_of_the_checkout_is_not_a_candidate(self, machine: Machine) -> None:
        interpreter = machine.python(machine.checkout / ".venv" / "bin" / "python3.10", "3.10")
        assert "no fitting Python" in machine.get_refusal("--choose", PATH=f"{interpreter.parent}:{machine.bin}")

    @pytest.mark.parametrize(
        ("glibc", "at_hand", "expected", "line"),
        [
            ("2.41", ["3.10.13", "3.12.1", "3.13.0", "3.9.18"], "3.13.0", "current line"),
            ("2.39", ["3.10.13", "3.11.7"], "3.11.7", "current line"),
            ("2.41", ["3.10.13", "3.14.0"], "3.10.13", "older line"),
            ("2.38", ["3.10.13", "3.13.0"], "3.10.13", "older line"),
            ("2.36", ["3.10.2", "3.10.13", "3.11.7"], "3.10.13", "older line"),
        ],
    )
    def test_c_library_decides_the_line(
        self, machine: Machine, glibc: str, at_hand: list[str], expected: str, line: str
    ) -> None:
        machine.glibc(glibc)
        for version in at_hand:
            machine.python(machine.pyenv(version), version.rpartition(".")[0])
        path, why = machine.choose()
        assert path == str(machine.pyenv(expected))
        assert why.startswith(line)

    def test_interpreter_without_headers_is_skipped_and_reported(self, machine: Machine) -> None:
        machine.glibc("2.41")
        bare = machine.python(machine.bin / "python3.12", "3.12", headers="bare")
        machine.python(machine.pyenv("3.10.13"), "3.10")
        path, why = machine.choose()
        assert path == str(machine.pyenv("3.10.13"))
        assert f"{bare} lacks its C headers (apt-get install python3-dev)" in why

    def test_other_implementation_is_skipped(self, machine: Machine) -> None:
        machine.glibc("2.41")
        machine.python(machine.bin / "python3.13", "3.13", kind="odd")
        machine.python(machine.bin / "python3.11", "3.11")
        assert machine.choose()[0] == str(machine.bin / "python3.11")

    def test_uv_fetches_an_interpreter_if_none_is_suitable(self, machine: Machine) -> None:
        machine.glibc("2.36")
        machine.python(machine.bin / "python3", "3.11")
        done = machine.run("--choose")
        assert done.returncode == 0
        assert "uv would fetch Python 3.10" in done.stdout

    def test_missing_interpreter_and_uv_are_an_error(self, machine: Machine) -> None:
        machine.glibc("2.36")
        sentence = machine.get_refusal("--choose")
        assert sentence.startswith("set-up: no fitting Python was found (glibc 2.36 takes 3.10)")
        assert "install Python 3.10" in sentence


class TestOverride:
    def test_path_in_python_is_chosen(self, machine: Machine) -> None:
        machine.glibc("2.41")
        machine.python(machine.bin / "python3.13", "3.13")
        interpreter = machine.python(machine.home / "mine", "3.11")
        path, why = machine.choose(PYTHON=str(interpreter))
        assert path == str(interpreter)
        assert "as PYTHON=" in why

    def test_name_in_python_is_resolved_on_path(self, machine: Machine) -> None:
        machine.glibc("2.41")
        interpreter = machine.python(machine.bin / "mine", "3.12")
        assert machine.choose(PYTHON="mine")[0] == str(interpreter)

    @pytest.mark.parametrize(
        ("version", "kind", "headers", "expected"),
        [
            ("3.9", "plain", "headers", "is Python 3.9, and with glibc 2.36 this machine takes plain CPython 3.10"),
            ("3.13", "plain", "headers", "is Python 3.13, and with glibc 2.36 this machine takes"),
            ("3.10", "odd", "headers", "takes plain CPython 3.10"),
            ("3.10", "plain", "bare", "lacks its C headers"),
        ],
    )
    def test_unsuitable_interpreter_is_an_error(
        self, machine: Machine, version: str, kind: str, headers: str, expected: str
    ) -> None:
        machine.glibc("2.36")
        interpreter = machine.python(machine.home / "mine", version, kind, headers)
        assert expected in machine.get_refusal("--choose", PYTHON=str(interpreter))

    def test_interpreter_that_does_not_run_is_an_error(self, machine: Machine) -> None:
        assert "does not run" in machine.get_refusal("--choose", PYTHON="/nowhere/python3")


class TestMachine:
    @pytest.mark.parametrize(("kernel", "processor"), [("Darwin", "arm64"), ("Linux", "aarch64")])
    def test_unsupported_platform_is_an_error(self, machine: Machine, kernel: str, processor: str) -> None:
        machine.script(machine.bin / "uname", f"[[ $1 == -s ]] && echo {kernel} || echo {processor}")
        assert f"this is {kernel} on {processor}" in machine.get_refusal()

    def test_other_c_library_is_an_error(self, machine: Machine) -> None:
        machine.script(machine.bin / "getconf", "exit 1")
        assert "another C library" in machine.get_refusal()

    def test_missing_compiler_is_an_error(self, machine: Machine) -> None:
        (machine.bin / f"python{REAL_VERSION}").symlink_to(REAL)
        assert "g++ is missing" in machine.get_refusal()
        assert not (machine.checkout / ".venv").exists()

    def test_unknown_option_is_an_error(self, machine: Machine) -> None:
        assert "unknown option --chose" in machine.get_refusal("--chose")


class TestEnvironment:
    """Tests of the state of .venv, with a fake uv that creates it and records its commands without downloads."""

    @pytest.fixture
    def ready(self, machine: Machine) -> Machine:
        (machine.bin / f"python{REAL_VERSION}").symlink_to(REAL)
        machine.script(machine.bin / "g++", "exit 0")
        machine.script(
            machine.bin / "uv",
            'echo "$1" >>"$HOME/uv-calls"',
            "case $1 in",
            "  --version) echo uv 99.0.0 ;;",
            f'  venv) {REAL} -m venv --without-pip "${{@: -1}}" ;;',
            "  pip) [[ ! -e $HOME/no-network ]] ;;",
            "esac",
        )
        return machine

    def uv_calls(self, machine: Machine) -> list[str]:
        """Return the commands of uv since the last call of this method."""
        log = machine.home / "uv-calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if line != "--version"]

    def set_up(self, machine: Machine, **environ: str) -> list[str]:
        done = machine.run(**environ)
        assert done.returncode == 0, done.stderr
        return self.uv_calls(machine)

    def test_environment_is_created_once(self, ready: Machine) -> None:
        assert self.set_up(ready) == ["venv", "pip"]
        assert self.set_up(ready) == []
        assert os.path.realpath(ready.checkout / ".venv" / "bin" / "python") == REAL

    def test_environment_is_updated_when_the_lock_changes(self, ready: Machine) -> None:
        self.set_up(ready)
        (ready.checkout / "requirements.txt").write_text("one==2\n")
        assert self.set_up(ready) == ["pip"]

    def test_incomplete_environment_is_created_again(self, ready: Machine) -> None:
        (ready.home / "no-network").touch()
        done = ready.run()
        assert done.returncode == 1
        assert "the packages could not be installed" in done.stderr
        self.uv_calls(ready)
        (ready.home / "no-network").unlink()
        assert self.set_up(ready) == ["venv", "pip"]

    def test_environment_in_a_moved_folder_is_created_again(self, ready: Machine, tmp_path: Path) -> None:
        self.set_up(ready)
        ready.checkout = ready.checkout.rename(tmp_path / "moved")
        assert self.set_up(ready) == ["venv", "pip"]

    def test_environment_without_its_interpreter_is_created_again(self, ready: Machine) -> None:
        self.set_up(ready)
        for python in (ready.checkout / ".venv" / "bin").glob("python*"):
            python.unlink()
        assert self.set_up(ready) == ["venv", "pip"]

    def test_environment_is_checked_against_the_override(self, ready: Machine) -> None:
        self.set_up(ready)
        assert self.set_up(ready, PYTHON=REAL) == []
        done = ready.run(PYTHON="/nowhere/python3")
        assert done.returncode == 1
        assert "does not run" in done.stderr

    def test_outdated_uv_is_skipped(self, ready: Machine) -> None:
        ready.script(ready.bin / "uv", "echo uv 0.1.0")
        private = ready.checkout / ".cache" / "uv" / "venv" / "bin" / "uv"
        ready.script(private, "echo uv 99.0.0")
        assert ready.run("--uv").stdout.strip() == str(private)
