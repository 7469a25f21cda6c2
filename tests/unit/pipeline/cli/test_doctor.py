"""Tests for `doctor`: single checks with given values, all checks on this machine, and the output of the command."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from components.base.errors import MACHINE
from pipeline.cli import doctor
from pipeline.cli import doctor as command
from pipeline.core import machine

GIB = 2**30


def test_checks_pass_on_the_machine_that_runs_the_tests(tmp_path: Path) -> None:
    findings = doctor.examine(tmp_path / "not" / "yet" / "there")
    assert {finding.check: finding.remedy for finding in findings if finding.state == "bad"} == {}
    assert len({finding.check for finding in findings}) == len(findings)


def test_findings_that_are_not_ok_have_a_remedy(tmp_path: Path) -> None:
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
        doctor.check_gpus(["NVIDIA H200"], "-1"),
        doctor.check_gpu_driver("470.82.01", None),
        doctor.check_cuda(None, None, [], system=False),
        doctor.check_cuda(None, "2.16.2", [], system=True),
        doctor.check_cuda("12.3", "2.16.2", ["nvidia-nccl-cu12"], system=False),
        doctor.check_pip(installed=False),
        doctor.check_compiler(None),
    ]
    assert [finding for finding in findings if finding.state == "ok" or not finding.remedy] == []


@pytest.mark.parametrize(
    ("version", "state"), [((3, 9, 18), "bad"), ((3, 10, 0), "ok"), ((3, 13, 5), "ok"), ((3, 14, 0), "bad")]
)
def test_python_version_is_checked(version: tuple[int, int, int], state: str) -> None:
    assert doctor.check_python(version).state == state


@pytest.mark.parametrize(
    ("glibc", "python", "state"),
    [((2, 36), (3, 10), "ok"), ((2, 38), (3, 11), "bad"), ((2, 39), (3, 12), "ok"), ((2, 41), (3, 13), "ok")],
)
def test_glibc_must_be_new_enough_for_the_release_line(
    glibc: tuple[int, int], python: tuple[int, int], state: str
) -> None:
    assert doctor.check_glibc(glibc, python).state == state


def test_packages_that_differ_from_the_lock_are_named() -> None:
    locked = {"tfx": "1.16.0", "tensorflow": "2.16.2", "apache-beam": "2.74.0", "rich": "15.0"}
    assert doctor.check_packages(locked, locked).state == "ok"

    rich_differs = doctor.check_packages(locked, locked | {"rich": "1.0"})
    assert rich_differs.state == "warn"
    assert "rich 1.0, expected 15.0" in rich_differs.found

    tensorflow_differs = doctor.check_packages(locked, {**locked, "tensorflow": "2.17.0"})
    assert tensorflow_differs.state == "bad"
    assert "tensorflow 2.17.0, expected 2.16.2" in tensorflow_differs.found

    not_installed = doctor.check_packages(locked, {})
    assert "tfx missing, expected 1.16.0; tensorflow missing, expected 2.16.2" in not_installed.found
    assert not_installed.found.endswith("and 1 more")


def test_lock_is_read_for_this_interpreter(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "# made by hand\n"
        "always==1.0 \\\n    --hash=sha256:00\n"
        "Some.Name==2.0 ; python_version >= '3' and sys_platform == 'linux' \\\n    --hash=sha256:00\n"
        "never==3.0 ; python_version < '3' \\\n    --hash=sha256:00\n"
        "last==4.0+cpu\n"
    )
    assert machine.read_locked_versions(lock) == {"always": "1.0", "some-name": "2.0", "last": "4.0+cpu"}
    assert machine.read_locked_versions(tmp_path / "none.txt") == {}


def test_shipped_lock_pins_tfx_for_this_interpreter() -> None:
    locked = machine.read_locked_versions(doctor.LOCK)
    assert locked["tfx"] == ("1.16.0" if sys.version_info < (3, 11) else "1.21.0")
    assert len(locked) > 200


def test_installed_versions_are_read_from_folder_names(tmp_path: Path) -> None:
    for name in ("tf_keras-2.16.0.dist-info", "PyYAML-6.0.dist-info", "rich"):
        (tmp_path / name).mkdir()
    assert machine.list_installed_versions([tmp_path]) == {"tf-keras": "2.16.0", "pyyaml": "6.0"}


@pytest.mark.parametrize(("available", "state"), [(1, "bad"), (3, "warn"), (8, "ok")])
def test_free_memory_is_checked(available: int, state: str) -> None:
    finding = doctor.check_memory(16 * GIB, available * GIB)
    assert finding.state == state
    assert finding.found == f"{available}.0 GiB free of 16.0 GiB"


def test_folder_with_enough_space_is_ok(tmp_path: Path) -> None:
    finding = doctor.check_folder("output folder", tmp_path / "out", 1, "elsewhere")
    assert finding.state == "ok"
    assert str(tmp_path / "out") in finding.found
    assert not (tmp_path / "out").exists()


def test_folder_without_enough_space_is_reported(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    assert doctor.check_folder("output folder", tmp_path, 2 * free, "elsewhere").state == "warn"
    assert doctor.check_folder("output folder", tmp_path, 20 * free, "elsewhere").state == "bad"


def test_file_instead_of_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    finding = doctor.check_folder("output folder", tmp_path / "out", 1, "elsewhere")
    assert finding.state == "bad"
    assert "is a file" in finding.found


def test_folder_that_cannot_be_written_is_reported() -> None:
    # Even root cannot write to this folder.
    assert "cannot be written" in doctor.check_folder("output folder", Path("/proc/1/out"), 1, "elsewhere").found


def test_credentials_are_found_but_not_printed(tmp_path: Path) -> None:
    assert doctor.check_credentials({}, tmp_path).found == "not set"
    key = tmp_path / "application_default_credentials.json"
    key.write_text("do not tell")
    assert doctor.check_credentials({}, tmp_path).found == "gcloud's application default"
    finding = doctor.check_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, tmp_path)
    assert finding.state == "ok"
    assert "do not tell" not in finding.found
    key.unlink()
    assert doctor.check_credentials({"GOOGLE_APPLICATION_CREDENTIALS": str(key)}, tmp_path).state == "bad"


def test_gpus_are_listed_from_the_driver_or_the_device_files(tmp_path: Path) -> None:
    driver, devices = tmp_path / "gpus", tmp_path / "dev"
    devices.mkdir()
    assert machine.list_gpu_names(driver, devices) == []
    (devices / "nvidia0").touch()
    (devices / "nvidiactl").touch()
    assert machine.list_gpu_names(driver, devices) == ["nvidia0"]
    (driver / "0000:01:00.0").mkdir(parents=True)
    (driver / "0000:01:00.0" / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\n")
    assert machine.list_gpu_names(driver, devices) == ["NVIDIA H200"]


@pytest.mark.parametrize(
    ("names", "visible", "expected", "needed"),
    [
        ([], None, "none", "none: training on CPUs works"),
        (["H200"], None, "1 x H200", "training.strategy.kind none or mirrored: on this GPU"),
        (["H200", "T4", "H200"], None, "2 x H200, 1 x T4", "mirrored: on all 3, by NCCL; none: on the first"),
        (["T4"] * 4, "2,3", "4 x T4; CUDA_VISIBLE_DEVICES=2,3 shows 2", "mirrored: on all 2"),
    ],
)
def test_gpus_are_described_with_a_suitable_strategy(
    names: list[str], visible: str | None, expected: str, needed: str
) -> None:
    finding = doctor.check_gpus(names, visible)
    assert (finding.state, finding.found) == ("ok", expected)
    assert needed in finding.needed


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), ("-1", 0), ("0", 1), ("1, 0", 2), ("0,-1,1", 1), ("0,2,1", 1), ("GPU-5f2b,MIG-9a", 2), ("none", 0)],
)
def test_visible_gpus_end_at_the_first_invalid_number(visible: str, count: int) -> None:
    assert machine.count_visible_gpus(visible, 2) == count


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
        "NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build  (builder@U16-A24-9-2)",
    ],
)
def test_driver_version_is_read(line: str, tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert machine.read_driver_version(file) is None
    file.write_text("GCC version:  gcc version 12.2.0\n")
    assert machine.read_driver_version(file) is None
    file.write_text(f"NVRM version: {line}\nGCC version:  gcc version 12.2.0\n")
    assert machine.read_driver_version(file) == "535.104.05"


@pytest.mark.parametrize(("version", "state"), [(None, "ok"), ("525.60.13", "ok"), ("470.82.01", "warn")])
def test_old_driver_is_reported(version: str | None, state: str) -> None:
    assert doctor.check_gpu_driver(version, "/usr/bin/nvidia-smi").state == state


def test_cuda_is_read_from_tensorflow_and_its_metadata(tmp_path: Path) -> None:
    assert machine.read_cuda_version([tmp_path]) is None
    assert machine.list_cuda_wheels([tmp_path]) == []
    build = tmp_path / "tensorflow" / "python" / "platform" / "build_info.py"
    build.parent.mkdir(parents=True)
    build.write_text("build_info = {}\n")
    assert machine.read_cuda_version([tmp_path]) is None
    build.write_text("build_info = dict([('cuda_version', '12.3'), ('is_cuda_build', True)])\n")
    assert machine.read_cuda_version([tmp_path]) == "12.3"
    metadata = tmp_path / "tensorflow-2.16.2.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.16.2\nRequires-Dist: numpy\n"
        "Requires-Dist: dill ; python_version >= '3'\n"
        "Requires-Dist: nvidia-nccl-cu12 ==2.19.3 ; extra == 'and-cuda'\n"
    )
    assert machine.list_cuda_wheels([tmp_path]) == ["nvidia-nccl-cu12"]


@pytest.mark.parametrize(("missing", "system"), [([], False), (["nvidia-nccl-cu12"], True)])
def test_cuda_may_come_from_wheels_or_from_the_system(missing: list[str], system: bool) -> None:
    assert doctor.check_cuda("12.3", "2.16.2", missing, system).state == "ok"


def test_cuda_of_the_system_is_found_in_the_folders_of_the_linker(tmp_path: Path) -> None:
    cache, folder = tmp_path / "ld.so.cache", tmp_path / "lib"
    folder.mkdir()
    assert not machine.system_has_cuda(cache, f"{folder}:")
    (folder / "libcudnn.so.8").touch()
    assert machine.system_has_cuda(cache, f":{folder}")
    cache.write_bytes(b"glibc-ld.so.cache1.1\0libc.so.6\0libcudnn.so.8\0")
    assert machine.system_has_cuda(cache, "")


def test_installed_tensorflow_is_built_with_cuda() -> None:
    folders = {Path(sysconfig.get_path("purelib"))}
    cuda = machine.read_cuda_version(folders)
    assert cuda is not None
    assert cuda.startswith("12.")
    assert "nvidia-nccl-cu12" in machine.list_cuda_wheels(folders)


def test_driver_and_cuda_are_checked_if_there_are_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
        (tmp_path / "gpus" / name / "information").write_text("Model: \t\t NVIDIA H200\n")
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Thu Feb 1\n")
    monkeypatch.setattr(doctor, "NVIDIA", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    texts = {finding.check: finding.found for finding in doctor.examine(tmp_path)}
    assert texts["GPUs"] == "2 x NVIDIA H200"
    assert texts["GPU driver"].startswith("550.54.15, ")
    assert "is built with CUDA 12." in texts["CUDA"]


def _call(*options: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(options))


def test_command_prints_a_row_per_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call("--output", str(tmp_path)) == 0
    output = capsys.readouterr().out
    for finding in doctor.examine(tmp_path):
        assert finding.check in output


def test_command_prints_a_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _call("--output", str(tmp_path), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["state"] in ("ok", "warn")
    assert {"check", "found", "needed", "state", "remedy"} == set(report["findings"][0])


def test_command_fails_if_a_finding_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").touch()
    assert _call("--output", str(tmp_path / "out")) == MACHINE
    assert "output folder: fix its permissions, or: --output DIR" in capsys.readouterr().out
    assert _call("--output", str(tmp_path / "out"), "--json") == MACHINE
    assert json.loads(capsys.readouterr().out)["state"] == "bad"


def test_doctor_does_not_import_heavy_modules() -> None:
    heavy = ["tensorflow", "tfx", "apache_beam", "ml_metadata", "pandas", "pyarrow"]
    code = f"import sys, pipeline.cli.doctor; print([name for name in {heavy} if name in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=doctor.LOCK.parent, capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"
