"""The image's recipe: what it stands on is pinned, it is not root, and what it copies and installs is all there."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from command import ROOT

DOCKER = ROOT / "deploy" / "docker"
RECIPE = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())
LOCK = (ROOT / "requirements.txt").read_text()
STEPS = [line.split(maxsplit=1) for line in RECIPE.splitlines() if line and not line.startswith("#")]
ARGUMENTS = dict(rest.split("=", 1) for step, rest in STEPS if step == "ARG")


def tracked(*paths: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def test_base_image_is_pinned() -> None:
    assert [rest.split()[0] for step, rest in STEPS if step == "FROM"] == ["${BEAM}", "${BASE}", "${BASE}"]
    assert re.search(r":3\.13\.\d+-slim-trixie@sha256:[0-9a-f]{64}$", ARGUMENTS["BASE"])
    [beam] = re.findall(r"^apache-beam==(\S+) ; python_full_version >= '3.11'", LOCK, re.MULTILINE)
    assert ARGUMENTS["BEAM"] == f"docker.io/apache/beam_python3.13_sdk:{beam}"


def test_image_runs_as_an_unprivileged_user() -> None:
    users = [rest for step, rest in STEPS if step == "USER"]
    assert users == ["1000:1000"]
    last = max(index for index, (step, _) in enumerate(STEPS) if step == "FROM")
    after = [step for step, _ in STEPS[STEPS.index(["USER", "1000:1000"]) :]]
    assert STEPS.index(["USER", "1000:1000"]) > last
    assert "RUN" not in after


def test_copied_files_are_in_the_build_context() -> None:
    lines = [line for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[0] != "#"]
    assert lines[0] == "*"
    sent = [line[1:] for line in lines if line.startswith("!")]
    copied = [rest.split()[:-1] for step, rest in STEPS if step == "COPY" and "--from" not in rest]
    wanted = {source for sources in copied for source in sources if not source.startswith("--")}
    for source in wanted:
        files = tracked(source)
        assert files, source
        ours = [file for file in files if file.endswith((".py", ".yaml", ".pbtxt", ".toml", ".txt", ".html", ".css"))]
        assert all(
            any(fnmatch.fnmatch(file, pattern) or file.startswith(f"{pattern}/") for pattern in sent) for file in ours
        ), source


def test_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    # Setuptools puts its own files beside the project's.
    for file in tracked("pyproject.toml", "README.md", "LICENSE", "pipeline", "components"):
        copy = tmp_path / "project" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", build, tmp_path], cwd=tmp_path / "project", capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    [wheel] = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == set(tracked("pipeline", "components"))
