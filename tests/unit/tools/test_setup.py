"""The set-up script, run for real in folders and on search paths made for the case; without the network."""

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
TOOLS = ["awk", "bash", "cat", "cut", "dirname", "env", "flock", "getconf", "head", "mkdir", "mv", "realpath"]
TOOLS += ["rm", "sed", "sha256sum", "sort", "timeout", "uname"]


class Machine:
    """A made-up machine: a checkout with the script, a search path of ours alone, a home."""

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
        """Return an interpreter that answers the script's probe and does nothing else."""
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

    def chosen(self, **environ: str) -> tuple[str, str]:
        """Return the interpreter it would take, and why."""
        done = self.run("--choose", **environ)
        assert done.returncode == 0, done.stderr
        path, why = done.stdout.splitlines()
        return path, why

    def refusal(self, *options: str, **environ: str) -> str:
        """Return the one sentence with which it gives up."""
        done = self.run(*options, **environ)
        assert done.returncode == 1
        assert done.stdout == ""
        (sentence,) = done.stderr.splitlines()
        return sentence


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestChoice:
    def test_takes_the_real_interpreter_on_path(self, machine: Machine) -> None:
        (machine.bin / f"python{REAL_VERSION}").symlink_to(REAL)
        path, why = machine.chosen()
        assert path == REAL
        assert f"Python {REAL_VERSION}" in why

    def test_passes_over_a_shim_that_rejects_and_finds_pyenvs_version(self, machine: Machine) -> None:
        machine.script(machine.bin / f"python{REAL_VERSION}", "echo 'pyenv: command not found' >&2", "exit 127")
        real = machine.pyenv(f"{REAL_VERSION}.1")
        real.parent.mkdir(parents=True)
        real.symlink_to(REAL)
        assert machine.chosen()[0] == REAL

    def test_virtual_environment_leads_to_its_real_interpreter(self, machine: Machine, tmp_path: Path) -> None:
        subprocess.run([REAL, "-m", "venv", "--without-pip", tmp_path / "theirs"], check=True)
        assert machine.chosen(PATH=f"{tmp_path}/theirs/bin:{machine.bin}")[0] == REAL

    def test_its_own_environment_is_no_candidate(self, machine: Machine) -> None:
        own = machine.python(machine.checkout / ".venv" / "bin" / "python3.10", "3.10")
        assert "no fitting Python" in machine.refusal("--choose", PATH=f"{own.parent}:{machine.bin}")

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
        path, why = machine.chosen()
        assert path == str(machine.pyenv(expected))
        assert why.startswith(line)

    def test_skips_an_interpreter_without_headers_and_reports_it(self, machine: Machine) -> None:
        machine.glibc("2.41")
        bare = machine.python(machine.bin / "python3.12", "3.12", headers="bare")
        machine.python(machine.pyenv("3.10.13"), "3.10")
        path, why = machine.chosen()
        assert path == str(machine.pyenv("3.10.13"))
        assert f"{bare} lacks its C headers (apt-get install python3-dev)" in why

    def test_passes_over_another_implementation(self, machine: Machine) -> None:
        machine.glibc("2.41")
        machine.python(machine.bin / "python3.13", "3.13", kind="odd")
        machine.python(machine.bin / "python3.11", "3.11")
        assert machine.chosen()[0] == str(machine.bin / "python3.11")

    def test_only_unfitting_ones_means_uv_would_fetch_one(self, machine: Machine) -> None:
        machine.glibc("2.36")
        machine.python(machine.bin / "python3", "3.11")
        done = machine.run("--choose")
        assert done.returncode == 0
        assert "uv would fetch Python 3.10" in done.stdout

    def test_no_interpreter_at_all(self, machine: Machine) -> None:
        machine.glibc("2.36")
        sentence = machine.refusal("--choose")
        assert sentence.startswith("set-up: no fitting Python was found (glibc 2.36 takes 3.10)")
        assert "install Python 3.10" in sentence


class TestOverride:
    def test_is_taken(self, machine: Machine) -> None:
        machine.glibc("2.41")
        machine.python(machine.bin / "python3.13", "3.13")
        mine = machine.python(machine.home / "mine", "3.11")
        path, why = machine.chosen(PYTHON=str(mine))
        assert path == str(mine)
        assert "as PYTHON=" in why

    def test_by_name(self, machine: Machine) -> None:
        machine.glibc("2.41")
        mine = machine.python(machine.bin / "mine", "3.12")
        assert machine.chosen(PYTHON="mine")[0] == str(mine)

    @pytest.mark.parametrize(
        ("version", "kind", "headers", "expected"),
        [
            ("3.9", "plain", "headers", "is Python 3.9, and with glibc 2.36 this machine takes plain CPython 3.10"),
            ("3.13", "plain", "headers", "is Python 3.13, and with glibc 2.36 this machine takes"),
            ("3.10", "odd", "headers", "takes plain CPython 3.10"),
            ("3.10", "plain", "bare", "lacks its C headers"),
        ],
    )
    def test_that_does_not_fit(self, machine: Machine, version: str, kind: str, headers: str, expected: str) -> None:
        machine.glibc("2.36")
        mine = machine.python(machine.home / "mine", version, kind, headers)
        assert expected in machine.refusal("--choose", PYTHON=str(mine))

    def test_that_does_not_run(self, machine: Machine) -> None:
        assert "does not run" in machine.refusal("--choose", PYTHON="/nowhere/python3")


class TestMachine:
    @pytest.mark.parametrize(("kernel", "processor"), [("Darwin", "arm64"), ("Linux", "aarch64")])
    def test_that_tfx_is_not_built_for(self, machine: Machine, kernel: str, processor: str) -> None:
        machine.script(machine.bin / "uname", f"[[ $1 == -s ]] && echo {kernel} || echo {processor}")
        assert f"this is {kernel} on {processor}" in machine.refusal()

    def test_with_another_c_library(self, machine: Machine) -> None:
        machine.script(machine.bin / "getconf", "exit 1")
        assert "another C library" in machine.refusal()

    def test_without_a_compiler(self, machine: Machine) -> None:
        (machine.bin / f"python{REAL_VERSION}").symlink_to(REAL)
        assert "g++ is missing" in machine.refusal()
        assert not (machine.checkout / ".venv").exists()

    def test_unknown_option(self, machine: Machine) -> None:
        assert "unknown option --chose" in machine.refusal("--chose")


class TestEnvironment:
    """The state of .venv; a fake uv creates it, records its commands, and downloads nothing."""

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
        """Return the commands of uv since the last call."""
        log = machine.home / "uv-calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if line != "--version"]

    def set_up(self, machine: Machine, **environ: str) -> list[str]:
        done = machine.run(**environ)
        assert done.returncode == 0, done.stderr
        return self.uv_calls(machine)

    def test_is_made_once(self, ready: Machine) -> None:
        assert self.set_up(ready) == ["venv", "pip"]
        assert self.set_up(ready) == []
        assert os.path.realpath(ready.checkout / ".venv" / "bin" / "python") == REAL

    def test_is_brought_up_to_date_when_the_lock_changes(self, ready: Machine) -> None:
        self.set_up(ready)
        (ready.checkout / "requirements.txt").write_text("one==2\n")
        assert self.set_up(ready) == ["pip"]

    def test_is_created_again_when_it_is_incomplete(self, ready: Machine) -> None:
        (ready.home / "no-network").touch()
        done = ready.run()
        assert done.returncode == 1
        assert "the packages could not be installed" in done.stderr
        self.uv_calls(ready)
        (ready.home / "no-network").unlink()
        assert self.set_up(ready) == ["venv", "pip"]

    def test_is_created_again_in_a_copied_folder(self, ready: Machine, tmp_path: Path) -> None:
        self.set_up(ready)
        ready.checkout = ready.checkout.rename(tmp_path / "moved")
        assert self.set_up(ready) == ["venv", "pip"]

    def test_is_created_again_when_its_interpreter_is_missing(self, ready: Machine) -> None:
        self.set_up(ready)
        for python in (ready.checkout / ".venv" / "bin").glob("python*"):
            python.unlink()
        assert self.set_up(ready) == ["venv", "pip"]

    def test_follows_the_override(self, ready: Machine) -> None:
        self.set_up(ready)
        assert self.set_up(ready, PYTHON=REAL) == []
        done = ready.run(PYTHON="/nowhere/python3")
        assert done.returncode == 1
        assert "does not run" in done.stderr

    def test_passes_over_a_uv_that_is_too_old(self, ready: Machine) -> None:
        ready.script(ready.bin / "uv", "echo uv 0.1.0")
        private = ready.checkout / ".cache" / "uv" / "venv" / "bin" / "uv"
        ready.script(private, "echo uv 99.0.0")
        assert ready.run("--uv").stdout.strip() == str(private)
