"""Put the faults of tools/mutations.yaml into a copy of the project, one at a time, and report which the tests notice.

    python tools/mutate.py [TEXT]    all, or those whose file or line contains the text

The copy is a temporary folder with the tracked files and this .venv. The results go into
docs/explanation/measurements/mutations.md, where the rows of other faults stay. The exit status is 1 if more than 2
faults are not noticed, or if a fault does not fit the code any more.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "explanation" / "measurements" / "mutations.md"
MOST_UNNOTICED = 2
"""Of all faults, how many the tests may overlook."""
_NOTHING = "**nothing**"
_NO_TESTS = 5
"""Exit status of pytest: a folder has no test of the level."""
_HEADER = """# Faults that the tests notice

`python tools/mutate.py` puts each of these faults into the code and runs the tests of its folder until one fails. It
wrote this table: {noticed} of {count} are noticed.

| file | line | becomes | noticed by |
|---|---|---|---|
"""


def copy_project(folder: Path) -> None:
    """Copy the tracked files to a folder, with the generated data; use .venv where it is."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for name in ("clicks", "digits", "penguins", "taxi"):
        shutil.copytree(ROOT / "data" / name, folder / "data" / name, dirs_exist_ok=True)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def noticed_by(folder: Path, tests: list[str]) -> str:
    """Return the first test that fails, "" if all pass."""
    options = ["-x", "-q", "-p", "no:cacheprovider"]
    # The short tests of all folders before the long ones.
    for level, path in itertools.product(("test", "rest"), tests):
        command = [".venv/bin/python", "-m", "pytest", "--levels", level, *options, path]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, _NO_TESTS):
            lines = (
                line.partition(" ")
                for line in ended.stdout.splitlines()
                if line.startswith(("FAILED tests", "ERROR tests"))
            )
            named = [name.partition(" - ")[0] for _, _, name in lines]
            return named[0] if named else f"{path} (exit status {ended.returncode})"
    return ""


def run(mutation: dict[str, str], tests: dict[str, list[str]], folder: Path) -> str:
    """Put one fault into the copy, run its tests, take it out again; return the test that has noticed it, or "".

    Raises:
      ValueError: If the line does not occur once.
    """
    file = folder / mutation["file"]
    text = file.read_text()
    if text.count(mutation["line"]) != 1:
        raise ValueError(
            f"{mutation['file']}: expected this text once, received it {text.count(mutation['line'])} "
            f"times: {mutation['line']}"
        )
    file.write_text(text.replace(mutation["line"], mutation["becomes"]))
    try:
        package = Path(*Path(mutation["file"]).parts[:2])
        of_module = sorted((folder / "tests" / "unit" / package).rglob(f"test_{file.stem}.py"))
        return noticed_by(folder, [*map(str, of_module), *tests[str(package)]])
    finally:
        file.write_text(text)


def main(wanted: str) -> int:
    """Run the faults that contain a text; return the exit status."""
    listed: dict[str, Any] = yaml.safe_load((ROOT / "tools" / "mutations.yaml").read_text())
    faults = [describe(each) for each in listed["mutations"]]
    with tempfile.TemporaryDirectory() as folder:
        copy_project(Path(folder))
        for mutation in listed["mutations"]:
            if wanted in f"{mutation['file']} {mutation['line']}":
                found = run(mutation, listed["tests"], Path(folder))
                print(f"{found or 'NOT NOTICED'}: {mutation['file']}: {mutation['becomes'].strip()}", flush=True)
                write_results({**read_results(), describe(mutation): found or _NOTHING}, faults)
    return int(list(read_results().values()).count(_NOTHING) > MOST_UNNOTICED)


def write_results(results: dict[str, str], faults: list[str]) -> None:
    """Write the table: the results of faults that are in the list, in its order."""
    rows = [f"{fault} {results[fault]} |" for fault in faults if fault in results]
    noticed = sum(_NOTHING not in row for row in rows)
    RESULTS.write_text(_HEADER.format(noticed=noticed, count=len(rows)) + "\n".join(rows) + "\n")


def describe(mutation: dict[str, str]) -> str:
    """Return a fault as the first cells of a row of the table."""
    cells = (mutation["file"], f"`{mutation['line'].strip()}`", f"`{mutation['becomes'].strip()}`")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def read_results() -> dict[str, str]:
    """Return the table of an earlier run: the description of a fault → what has noticed it."""
    if not RESULTS.exists():
        return {}
    rows = (
        line.rstrip(" |").rpartition(" | ") for line in RESULTS.read_text().splitlines() if line.startswith("| comp")
    )
    return {f"{fault} |": found for fault, _, found in rows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
