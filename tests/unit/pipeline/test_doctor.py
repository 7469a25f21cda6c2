"""The doctor: each check on a machine handed to it, all of them on the real one, and the verb's two shapes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.errors import MACHINE
from pipeline import doctor
from pipeline.commands import doctor as command

GIB = 2**30


def test_the_real_machine_runs_these_tests_so_nothing_is_bad(tmp_path: Path) -> None:
    findings = doctor.examine(tmp_path / "not" / "yet" / "there")
    assert {finding.check: finding.remedy for finding in findings if finding.state == "bad"} == {}
    assert len({finding.check for finding in findings}) == len(findings)


def test_every_finding_that_is_not_ok_says_how_to_mend_it(tmp_path: Path) -> None:
    locked = dict.fromkeys(doctor.LINE, "1.0")
    findings = [
        doctor.check_python((3, 9, 1)),
        doctor.check_glibc(None, (3, 10)),
        doctor.check_glibc((2, 36), (3, 13)),
        doctor.check_glibc((2, 12), (3, 10)),
        doctor.check_packages({}, {}),
        doctor.check_packages(locked, {}),
        doctor.check_packages(locked | {"rich": "2.0"}, locked),
        doctor.check_cores(1),
        doctor.check_memory(4 * GIB, GIB),
        doctor.check_folder("output folder", tmp_path, 2**70, "elsewhere"),
        doctor.check_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}, tmp_path),
        doctor.check_pip(there=False),
        doctor.check_compiler(None),
    ]
    assert [finding for finding in findings if finding.state == "ok" or not finding.remedy] == []


@pytest.mark.parametrize(
    ("version", "state"), [((3, 9, 18), "bad"), ((3, 10, 0), "ok"), ((3, 13, 5), "ok"), ((3, 14, 0), "bad")]
)
def test_python(version: tuple[int, int, int], state: str) -> None:
    assert doctor.check_python(version).state == state


@pytest.mark.parametrize(
    ("glibc", "python", "state"),
    [((2, 36), (3, 10), "ok"), ((2, 38), (3, 11), "bad"), ((2, 39), (3, 12), "ok"), ((2, 41), (3, 13), "ok")],
)
def test_glibc_decides_the_line(glibc: tuple[int, int], python: tuple[int, int], state: str) -> None:
    assert doctor.check_glibc(glibc, python).state == state


def test_packages_off_the_lock_are_named() -> None:
    locked = {"tfx": "1.16.0", "tensorflow": "2.16.2", "apache-beam": "2.74.0", "rich": "15.0"}
    assert doctor.check_packages(locked, locked).state == "ok"

    other = doctor.check_packages(locked, locked | {"rich": "1.0"})
    assert other.state == "warn"
    assert "rich 1.0, expected 15.0" in other.found

    line = doctor.check_packages(locked, {**locked, "tensorflow": "2.17.0"})
    assert line.state == "bad"
    assert "tensorflow 2.17.0, expected 2.16.2" in line.found

    bare = doctor.check_packages(locked, {})
    assert "tfx missing, expected 1.16.0; tensorflow missing, expected 2.16.2" in bare.found
    assert bare.found.endswith("and 1 more")


def test_the_lock_is_read_for_this_interpreter(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "# made by hand\n"
        "always==1.0 \\\n    --hash=sha256:00\n"
        "Some.Name==2.0 ; python_version >= '3' and sys_platform == 'linux' \\\n    --hash=sha256:00\n"
        "never==3.0 ; python_version < '3' \\\n    --hash=sha256:00\n"
        "last==4.0+cpu\n"
    )
    assert doctor.locked_versions(lock) == {"always": "1.0", "some-name": "2.0", "last": "4.0+cpu"}
    assert doctor.locked_versions(tmp_path / "none.txt") == {}


def test_the_shipped_lock_has_one_tfx_for_this_interpreter() -> None:
    locked = doctor.locked_versions(doctor.LOCK)
    assert locked["tfx"] == ("1.16.0" if sys.version_info < (3, 11) else "1.21.0")
    assert len(locked) > 200


def test_installed_versions_are_read_from_the_folders_names(tmp_path: Path) -> None:
    for name in ("tf_keras-2.16.0.dist-info", "PyYAML-6.0.dist-info", "rich"):
        (tmp_path / name).mkdir()
    assert doctor.installed_versions([tmp_path]) == {"tf-keras": "2.16.0", "pyyaml": "6.0"}


@pytest.mark.parametrize(("available", "state"), [(1, "bad"), (3, "warn"), (8, "ok")])
def test_memory(available: int, state: str) -> None:
    finding = doctor.check_memory(16 * GIB, available * GIB)
    assert finding.state == state
    assert finding.found == f"{available}.0 GiB free of 16.0 GiB"


def test_real_memory_is_plausible() -> None:
    total, available = doctor.memory()
    assert 0 < available <= total


def test_a_folder_with_room(tmp_path: Path) -> None:
    finding = doctor.check_folder("output folder", tmp_path / "out", 1, "elsewhere")
    assert finding.state == "ok"
    assert str(tmp_path / "out") in finding.found
    assert not (tmp_path / "out").exists()


def test_a_folder_with_little_room(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert doctor.check_folder("output folder", tmp_path, 2 * free, "elsewhere").state == "warn"
    assert doctor.check_folder("output folder", tmp_path, 20 * free, "elsewhere").state == "bad"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    finding = doctor.check_folder("output folder", tmp_path / "out", 1, "elsewhere")
    assert finding.state == "bad"
    assert "is a file" in finding.found


def test_a_folder_that_cannot_be_written() -> None:
    # Not even root writes there.
    assert "cannot be written" in doctor.check_folder("output folder", Path("/proc/1/out"), 1, "elsewhere").found


def test_credentials_are_found_and_never_read(tmp_path: Path) -> None:
    assert doctor.check_credentials({}, tmp_path).found == "not set"
    key = tmp_path / "application_default_credentials.json"
    key.write_text("do not tell")
    assert doctor.check_credentials({}, tmp_path).found == "gcloud's application default"
    named = doctor.check_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, tmp_path)
    assert named.state == "ok"
    assert "do not tell" not in named.found
    key.unlink()
    assert doctor.check_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, tmp_path).state == "bad"


def test_gpus_are_named_by_the_driver_or_counted_by_their_nodes(tmp_path: Path) -> None:
    driver, devices = tmp_path / "gpus", tmp_path / "dev"
    devices.mkdir()
    assert doctor.gpu_names(driver, devices) == []
    (devices / "nvidia0").touch()
    (devices / "nvidiactl").touch()
    assert doctor.gpu_names(driver, devices) == ["nvidia0"]
    (driver / "0000:01:00.0").mkdir(parents=True)
    (driver / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\n")
    assert doctor.gpu_names(driver, devices) == ["NVIDIA H200"]
    assert doctor.check_gpus(["NVIDIA H200"]).found == "NVIDIA H200"


def _call(*options: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(options))


def test_the_verb_shows_a_row_per_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call("--output", str(tmp_path)) == 0
    shown = capsys.readouterr().out
    for finding in doctor.examine(tmp_path):
        assert finding.check in shown


def test_the_verb_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call("--output", str(tmp_path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["state"] in ("ok", "warn")
    assert {"check", "found", "needed", "state", "remedy"} == set(told["findings"][0])


def test_the_verb_fails_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").touch()
    assert _call("--output", str(tmp_path / "out")) == MACHINE
    assert "output folder: mend its permissions, or: --output DIR" in capsys.readouterr().out
    assert _call("--output", str(tmp_path / "out"), "--json") == MACHINE
    assert json.loads(capsys.readouterr().out)["state"] == "bad"


def test_nothing_heavy_is_imported() -> None:
    heavy = ["tensorflow", "tfx", "apache_beam", "ml_metadata", "pandas", "pyarrow"]
    code = f"import sys, pipeline.commands.doctor; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=doctor.LOCK.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
