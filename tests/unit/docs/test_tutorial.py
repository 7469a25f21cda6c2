"""Tests that the commands of the tutorial print the shown output, and that the example of the README works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.data import doc_pages

README = doc_pages.ROOT / "README.md"
CONSOLE = [
    (command, output)
    for text in doc_pages.blocks(doc_pages.TUTORIAL, "")
    for command, output in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
]
SERVE = next(command for command, _ in CONSOLE if command.startswith("python runner.py serve"))
SECOND = next(number for number, (command, _) in enumerate(CONSOLE) if "data.spans" in command)
"""Index of the first command that is not run. From there on, the tutorial repeats the steps with more rows."""
NOT_DUE = 3


VARIES = re.compile(r"(\d{8}T\d{6}(?:-[0-9a-f]+)+|\b[0-9a-f]{12}\b|\d[\d,]*(?:\.\d+)?(?:e-\d+)?)")
"""IDs of runs, digests and numbers, which differ between runs."""
EXACT = re.compile(r"(?:rows: |task ).*|(?:overall|plan = \w+) [\d,]+")
"""The beginning of a line with numbers of rows, which are the same on every machine."""
OVERALL = re.compile(r"^overall [\d,]+ (.+)$", re.MULTILINE)


def compile_pattern(output: str) -> re.Pattern[str]:
    """Return a pattern that matches an output.

    A line `…` matches any number of lines. Varying parts, such as numbers, and the width of columns may differ.
    """
    patterns = []
    for line in output.splitlines():
        text = " ".join(line.split()).replace("/home/you/tfx/", "")
        beginning = EXACT.match(text)
        exact = beginning[0] if beginning else ""
        parts = VARIES.split(text.removeprefix(exact))
        varying = "".join(r"[\w.,-]+" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        patterns.append(r"(?:.*\n)*?" if line == "…" else rf"{re.escape(exact)}{varying}\n")
    return re.compile("".join(patterns))


def overall_metrics(output: str) -> list[float]:
    """Return the metrics of the whole eval split, from an output with collapsed spaces."""
    return [float(value) for line in OVERALL.findall(output) for value in line.split()]


def collapse_spaces(output: str, folder: Path) -> str:
    output = output.replace(f"{folder}/", "")
    return "".join(f"{' '.join(line.split())}\n" for line in output.splitlines())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder in which the commands work as in the project, with the program of the tutorial."""
    root = tmp_path_factory.mktemp("tutorial")
    (root / "runner.py").symlink_to(doc_pages.ROOT / "runner.py")
    for name in ("configs", "schema"):
        (root / name).mkdir()
    [program] = doc_pages.blocks(doc_pages.TUTORIAL, "python")
    (root / "make_customers.py").write_text(program, encoding="utf-8")
    return root


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    # The output must be as wide as in the tutorial, independently of the terminal.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    bash = ["bash", "-c", command]
    return subprocess.run(bash, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """Start the server of the tutorial on free ports, and yield its REST address."""
    command = [sys.executable, *SERVE.split()[1:], "--rest-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        log = ""
        # The model may be loaded before or after the server listens.
        while not ((address := re.search(r"REST at ([\d.]+:\d+)", log)) and "is loaded" in log):
            line = process.stderr.readline()
            assert line, f"expected a server, received:\n{log}"
            log += line
        yield address[1]
        process.terminate()


@pytest.mark.e2e
@pytest.mark.slow
def test_commands_of_the_tutorial_print_the_shown_output(folder: Path, request: pytest.FixtureRequest) -> None:
    run = "no run yet"
    for command, output in CONSOLE[:SECOND]:
        if command == SERVE:
            continue
        typed_command = re.sub(r"\d{8}T\d{6}", run, command)
        if "127.0.0.1:8501" in typed_command:
            typed_command = typed_command.replace("127.0.0.1:8501", request.getfixturevalue("server"))
        if " due " in typed_command and not (folder / "appended").exists():
            with (folder / "configs" / "customers.yaml").open("a") as config:
                config.write(doc_pages.blocks(doc_pages.TUTORIAL, "yaml")[0])
            (folder / "appended").touch()
        process = shell(folder, typed_command)
        printed = process.stdout + process.stderr
        assert process.returncode == (NOT_DUE if output.startswith("not due") else 0), f"{typed_command}\n{printed}"
        received = collapse_spaces(printed, folder)
        assert compile_pattern(output).match(received), f"{typed_command}\nexpected:\n{output}\nreceived:\n{printed}"
        if shown_metrics := overall_metrics(collapse_spaces(output, folder)):
            # Rounding differs between CPUs, so that early stopping may end the training at another step.
            np.testing.assert_allclose(overall_metrics(received), shown_metrics, atol=0.05, rtol=0)
        run = (re.findall(r"\d{8}T\d{6}\S*", printed) if "--local" in typed_command else [run])[0]


@pytest.mark.e2e
@pytest.mark.slow
def test_program_of_the_readme_uses_the_model(folder: Path) -> None:
    [program] = doc_pages.blocks(README, "python")
    process = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    basic_and_silent, flat_and_talkative = map(float, re.findall(r"[\d.]+(?:e-\d+)?", process.stdout))
    # In the generated data, the true probabilities of these rows are 0.95 and 0.
    assert basic_and_silent == pytest.approx(0.95, abs=0.1)
    assert flat_and_talkative == pytest.approx(0.0, abs=0.1)


@pytest.mark.slow
def test_configs_of_the_readme_fit_its_table(tmp_path: Path) -> None:
    doc_pages.write_customers(tmp_path, 1)
    (tmp_path / "runner.py").symlink_to(doc_pages.ROOT / "runner.py")
    (tmp_path / "data/customers/1/customers.csv").rename(tmp_path / "data/customers.csv")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/churn.yaml").write_text(doc_pages.blocks(README, "yaml")[0])
    commands = re.findall(r"^(python runner\.py start.*?)  +#", README.read_text(), re.MULTILINE)
    assert len(commands) == 1
    commands[0] += " --budget 0 --set 'model={kind: linear}' --set training.steps=100"
    for command in (*commands, "python runner.py validate --config configs/churn.yaml"):
        process = shell(tmp_path, command)
        assert process.returncode == 0, process.stderr
