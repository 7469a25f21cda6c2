"""Typical mistakes of the first hour: each ends with exit code 2, an error that says what is wrong, and a remedy."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.cli.main import main
from tests.support.runs.command import call

HEADER = "tenure,city,income,churned"


class Mistake(NamedTuple):
    """A mistake.

    Attributes:
      command: The command line, in a folder with data.csv and its config c.yaml.
      error: Pattern of the error.
      remedy: Pattern of the remedy.
      spoil: Called before the command, in the same folder.
    """

    command: str
    error: str
    remedy: str
    spoil: Callable[[], object] = lambda: None


def write(file: str, content: str | bytes) -> Callable[[], object]:
    return lambda: Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())


def replace(old: str, new: str, file: str = "c.yaml") -> Callable[[], object]:
    def spoil() -> None:
        text = Path(file).read_text()
        assert old in text
        Path(file).write_text(text.replace(old, new))

    return spoil


def write_spreadsheet() -> None:
    with zipfile.ZipFile("book.csv", "w") as archive:
        archive.writestr("[Content_Types].xml", "<xml/>")


START = "start {} --label churned --budget 0 --config new.yaml --schema new.pbtxt"
VALIDATE = "validate --config c.yaml"
MISTAKES = {
    # The data.
    "file that does not exist": Mistake(START.format("dat.csv"), "dat.csv does not exist", "relative paths start"),
    "empty file": Mistake(START.format("e.csv"), r"e.csv has no rows: it is empty", "add a row", write("e.csv", "")),
    "header alone": Mistake(
        START.format("h.csv"),
        "h.csv has no rows: there is nothing below its header",
        "add a row",
        write("h.csv", HEADER),
    ),
    "spreadsheet": Mistake(
        START.format("book.csv"), "is a zip archive or a spreadsheet", "save the sheet as CSV", write_spreadsheet
    ),
    "web page": Mistake(
        START.format("p.csv"),
        "p.csv is a web page, expected CSV",
        "download the data",
        write("p.csv", "<!doctype html>"),
    ),
    "wrong delimiter": Mistake(
        f"{START.format('data.csv')} --delimiter ;", "the one column 'tenure,city", "--delimiter .* such as ','"
    ),
    "column twice": Mistake(
        START.format("data.csv"), "received 'tenure' twice", "rename one", replace("city", "tenure", "data.csv")
    ),
    # The label.
    "no label": Mistake("start data.csv", "required: --label", "see python runner.py start --help"),
    "label misspelt": Mistake(
        START.format("data.csv").replace("churned", "chrned"), "no column 'chrned'; did you mean 'churned'", "--label"
    ),
    "label of one value": Mistake(
        START.format("data.csv"), "'churned' is the same in all 60 rows", "differs", replace(",yes", ",no", "data.csv")
    ),
    "label that is missing": Mistake(
        START.format("data.csv"),
        r"'churned' is missing in \d+ of 60 rows",
        "remove these rows or fill in",
        replace(",yes", ",", "data.csv"),
    ),
    "label with a single =": Mistake("start data.csv --label churned='yes'", "equality is written ==", "a comparison"),
    "texts as numbers": Mistake(
        f"{START.format('data.csv')} --task regression", "expects numbers, .* holds texts such as", "remove --task"
    ),
    # The config.
    "config that does not exist": Mistake("validate --config cc.yaml", "no config at cc.yaml", "--config FILE"),
    "config that exists": Mistake("start data.csv --label churned --config c.yaml", "c.yaml exists already", "--force"),
    "tab in the config": Mistake(
        VALIDATE,
        r"c.yaml:4: .* indented with a tab, expected spaces",
        "indents",
        replace("  path: data.csv", "\tpath: data.csv"),
    ),
    "key misspelt": Mistake(VALIDATE, "lable: unknown key; did you mean 'label'", "", replace("  label:", "  lable:")),
    "text for a number": Mistake(
        VALIDATE, "training.steps: expected a whole number, received 'many'", "", replace("steps: 480", "steps: many")
    ),
    "feature misspelt": Mistake(
        VALIDATE, "no column 'tenur'; did you mean 'tenure'", "", replace("    tenure:", "    tenur:")
    ),
    "operation misspelt": Mistake(VALIDATE, "z_scor", "z_score", replace("z_score", "z_scor")),
    "metric misspelt": Mistake(VALIDATE, "acu", "auc", replace("    auc:", "    acu:")),
    "setting without a value": Mistake(f"{VALIDATE} --set training.steps", "expected section.field=value", "--set"),
    # The command.
    "verb misspelt": Mistake("strat data.csv", "unknown verb 'strat'; did you mean 'start'", "runner.py help"),
    "option misspelt": Mistake("run --locl", "unknown option --locl; did you mean '--local'", "run --help"),
    "node misspelt": Mistake("run --config c.yaml --from Trainr", "no node 'Trainr'; did you mean 'Trainer'", ""),
    "nothing to predict with": Mistake(
        "predict --data data.csv --into p", "expected --config, or a run", "--output DIR"
    ),
    "no run to explain": Mistake("explain --config c.yaml", "nothing has run yet", "run the pipeline first"),
    "version that was not pushed": Mistake(
        "models --config c.yaml promote 3", "models promote before the opt", "--help"
    ),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table and its config, and return their folder."""
    folder = tmp_path_factory.mktemp("table")
    chance = np.random.default_rng(0)
    lines = [f"{18 + row},{chance.choice(['Paris', 'Lyon'])},{chance.normal(30, 5):.2f},no" for row in range(60)]
    lines[::3] = [line.replace(",no", ",yes") for line in lines[::3]]
    (folder / "data.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        files = "--config c.yaml --schema s.pbtxt"
        assert main(f"init --data data.csv --label churned --budget 0 {files}".split()) == 0
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_explained(
    name: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[name]
    for file in table.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    mistake.spoil()
    before = sorted(tmp_path.rglob("*"))
    try:
        code = main(mistake.command.split())
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    out, err = capfd.readouterr()
    assert (code, out) == (2, ""), err
    error, remedy = err.split("  remedy: ")
    assert error.startswith("error: ")
    assert re.search(mistake.error, error), error
    assert remedy.strip()
    assert re.search(mistake.remedy, err), err
    assert sorted(tmp_path.rglob("*")) == before, "nothing is half-written"


@pytest.mark.parametrize("words", ["doctor", "validate --config configs/taxi.yaml", "start data.csv --label y"])
def test_python_without_the_packages_is_named(words: str) -> None:
    # -S: without the packages of this environment.
    ended = call([sys.executable, "-S", "runner.py", *words.split()])
    assert ended.exit_code == 2
    error, remedy = ended.err.splitlines()
    assert re.fullmatch(
        f"error: expected a Python with the packages of this project, but {sys.executable} lacks .*", error
    )
    assert re.fullmatch("  remedy: run `(source .venv/bin/activate|make setup)`", remedy)
