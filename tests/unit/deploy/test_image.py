"""Tests of the Dockerfile: the base image is pinned, the user is unprivileged, and copied files exist."""

from __future__ import annotations

import fnmatch
import os
import platform
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.runs.command import ROOT

DOCKER = ROOT / "deploy" / "docker"
RECIPE = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())
LOCK = (ROOT / "requirements.txt").read_text()
STEPS = [line.split(maxsplit=1) for line in RECIPE.splitlines() if line and not line.startswith("#")]
ARGUMENTS = dict(words.split("=", 1) for step, words in STEPS if step == "ARG")


def list_tracked_files(*paths: str) -> list[str]:
    process = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return process.stdout.split()


def test_base_image_is_pinned() -> None:
    assert [words.split()[0] for step, words in STEPS if step == "FROM"] == ["${BEAM}", *["${BASE}"] * 3]
    assert re.search(r":3\.13\.\d+-slim-trixie@sha256:[0-9a-f]{64}$", ARGUMENTS["BASE"])
    [beam] = re.findall(r"^apache-beam==(\S+) ; python_full_version >= '3.11'", LOCK, re.MULTILINE)
    assert ARGUMENTS["BEAM"] == f"docker.io/apache/beam_python3.13_sdk:{beam}"


def test_image_runs_as_an_unprivileged_user() -> None:
    users = [words for step, words in STEPS if step == "USER"]
    assert users == ["1000:1000"]
    last = max(index for index, (step, _) in enumerate(STEPS) if step == "FROM")
    after = [step for step, _ in STEPS[STEPS.index(["USER", "1000:1000"]) :]]
    assert STEPS.index(["USER", "1000:1000"]) > last
    assert "RUN" not in after


def test_copied_files_are_in_the_build_context() -> None:
    lines = [line for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] != "#"]
    assert lines[0] == "*"
    sent = [line[1:] for line in lines if line.startswith("!")]
    copied = [words.split()[:-1] for step, words in STEPS if step == "COPY" and "--from" not in words]
    copied_sources = {source for sources in copied for source in sources if not source.startswith("--")}
    for source in copied_sources:
        files = list_tracked_files(source)
        assert files, source
        source_files = [
            file for file in files if file.endswith((".py", ".yaml", ".pbtxt", ".toml", ".txt", ".html", ".css"))
        ]
        assert all(
            any(fnmatch.fnmatch(file, pattern) or file.startswith(f"{pattern}/") for pattern in sent)
            for file in source_files
        ), source


def shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the RUN step that begins with these words, with the Python of this process as python3."""
    [step] = [text for step, text in STEPS if step == "RUN" and text.startswith(words)]
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(sys.executable)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "EXTRAS": ""}
    step = step.replace("/dependencies.txt", "dependencies.txt")
    return subprocess.run(["sh", "-c", step], cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_build_fails_if_the_base_image_does_not_fit_the_locked_wheels(tmp_path: Path) -> None:
    process = shell('python3 -c "import platform', tmp_path)
    fits = sys.version_info >= (3, 11) and [*map(int, platform.libc_ver()[1].split("."))] >= [2, 39]
    assert (process.returncode == 0) == fits, process.stderr
    assert fits or "BASE: expected Python 3.11 to 3.13 and glibc 2.39 or newer" in process.stderr


def test_image_installs_the_dependencies_of_the_project(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        import tomli

        # tomllib is part of Python since 3.11. Older versions use the package tomli, from which it was derived.
        packages = Path(tomli.__file__).parents[1]
        (tmp_path / "tomllib.py").write_text(f"import sys; sys.path.append('{packages}'); from tomli import load")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    process = shell('python3 -c "import tomllib', tmp_path)
    assert process.returncode == 0, process.stderr
    names = (tmp_path / "dependencies.txt").read_text().splitlines()
    assert any(name.startswith("apache-beam==") for name in names)
    assert all(re.match(r"[a-z0-9-]+[<>=]", name) for name in names)


def test_image_contains_a_list_of_its_packages() -> None:
    """The contents of the list are tested where the image is built, in tests/e2e/test_kubernetes.py."""
    [step] = [words for step, words in STEPS if step == "RUN" and "cyclonedx-py" in words]
    # The list must come from the locked tool, which is not part of the image, and describe the folder that is copied.
    assert "--verify-hashes --constraint requirements.txt cyclonedx-bom" in re.sub(r"\s+", " ", step)
    assert step.endswith("--output-file /opt/venv/sbom.json /opt/venv/bin/python")
    assert re.search(r"^cyclonedx-bom==", LOCK, re.MULTILINE)
    assert ["COPY", "--from=packages /opt/venv /opt/venv"] in STEPS


def test_wheel_contains_every_file_of_the_packages(tmp_path: Path) -> None:
    # Build a copy, because setuptools writes files into the folder of the project.
    for file in list_tracked_files("pyproject.toml", "README.md", "LICENSE", "pipeline", "components"):
        copy = tmp_path / "project" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    process = subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=tmp_path / "project", capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    [wheel] = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == set(list_tracked_files("pipeline", "components"))
