"""From a table to a pushed model by `init` alone; and tables that `init` refuses."""

from __future__ import annotations

import re
import signal
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pipeline.authoring.config import load
from tests.support.runs.command import Ended, command, start, versions, wait

pytestmark = pytest.mark.e2e


def census(path: Path) -> Path:
    """As the census is written: spaces behind commas, ` ?` for missing, a label of texts, amounts nearly always 0."""
    random = np.random.default_rng(5)
    lines = ["experience, workclass, capital gain, hours, income"]
    for _ in range(900):
        age, hours = int(random.integers(17, 80)), int(np.clip(random.normal(40, 12), 1, 99))
        gain = int(random.lognormal(8, 1)) if random.random() < 0.1 else 0
        work = random.choice(["Private", "Self", "State", "?"], p=[0.7, 0.15, 0.1, 0.05])
        rich = random.random() < 1 / (1 + np.exp(-(0.06 * (age - 60) + 0.05 * (hours - 40) + (gain > 3000) * 3)))
        lines.append(f"{age}, {work}, {gain}, {hours}, {'>50K' if rich else '<=50K'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def customers(path: Path) -> Path:
    """As a German office exports it: another encoding and delimiter, decimal commas, days first, any headers."""
    random = np.random.default_rng(7)
    lines = ["Kunden-Nr.;Größe (m²);lambda;gekündigt am;PLZ;Ort;Bemerkung;class"]
    for row in range(900):
        size, rent = random.lognormal(4.3, 0.3), random.normal(900, 300)
        month, weekday = random.integers(1, 13), random.integers(1, 8)
        day = date.fromisocalendar(2024, 4 * month, weekday)
        has_left = random.random() < 1 / (1 + np.exp(-(0.006 * (rent - 900) + 0.03 * (80 - size) + (weekday > 5))))
        code, place = (("50667", "Köln"), ("01067", "Dresden"), ("52349", "Düren"))[row % 3]
        numbers = f"{size:.1f};{rent:,.2f}".translate(str.maketrans(".,", ",."))
        remark = f"Kunde {row} wohnt in {place} gerne und lange"
        lines.append(f"{7000 + row};{numbers};{day:%d.%m.%Y};{code};{place};{remark};{'ja' if has_left else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="cp1252")
    return path


def kinds(path: Path) -> Path:
    """Between semicolons: two numbers, a date, three kinds, and a few rows of kinds that come once each."""
    random = np.random.default_rng(6)
    lines = ["length;width;seen;kind"]
    for row in range(240):
        kind = int(random.integers(0, 3))
        day = f"2024-{1 + row % 12:02}-{1 + row % 28:02}"
        lines.append(f"{kind + random.normal(0, 0.3):.2f};{random.normal():.3f};{day};{'abc'[kind]}")
    lines += [f"{5 + number};0;2024-01-01;rare{number}" for number in range(8)]
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(data: Path, label: str, *options: str, budget: float = 0) -> tuple[str, ...]:
    written = ("--config", str(data.parent / "drafted.yaml"), "--schema", str(data.parent / "drafted.pbtxt"))
    return ("init", "--data", str(data), "--label", label, *written, "--budget", str(budget), *options)


def init(data: Path, label: str, *options: str, budget: float = 0) -> tuple[Ended, Path]:
    return command(*arguments(data, label, *options, budget=budget)), data.parent / "drafted.yaml"


@pytest.mark.slow
def test_table_of_an_office_becomes_a_pushed_model(tmp_path: Path) -> None:
    drafted, config = init(customers(tmp_path / "customers.csv"), "class")
    assert drafted.exit_code == 0, drafted.err
    assert drafted.err == ""
    assert "900 rows, 5 features, 3 columns excluded, label \"class == 'ja'\" (binary), model ensemble" in drafted.out
    for line in ("encoding cp1252", "delimiter ';'", "decimal comma", "order dmy", "codes of digits", "identifier"):
        assert line in drafted.out
    assert max(map(len, drafted.out.splitlines())) <= 120 + len(str(tmp_path))
    # A model that trains in seconds is enough here; the next test trains the proposed model.
    fast = ("--set", "model={kind: linear}", "--set", "training.steps=100")
    ended = command("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--json", *fast)
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.out or ended.err
    # The odds that made the labels reach about 0.85.
    assert ended.result["metrics"]["auc"] > 0.7
    types = ended.result["column_types"]
    assert (types["Grosse_m2"], types["lambda"], types["PLZ"], types["class"]) == ("float", "float", "bytes", "bytes")
    assert versions(tmp_path / "out" / "drafted") == [ended.result["pushed_version"]]


@pytest.mark.slow
def test_kinds_are_fitted_and_the_best_one_is_written(tmp_path: Path) -> None:
    # A generous budget, so that a slow machine can fit all candidates.
    drafted, config = init(census(tmp_path / "census.csv"), "income", budget=200)
    assert (drafted.exit_code, drafted.err) == (0, ""), drafted.err
    assert drafted.out.startswith("fitting ensemble, linear to 900 rows, within 200 s in all")
    rows = re.findall(r"^(\w+) +(0\.\d{4}) +(.*?)  +0\.\d+ +(as a part|[\d.]+)$", drafted.out, re.MULTILINE)
    # The mean of trees and the linear model is listed only if the linear model has a weight in it.
    kinds = [kind for kind, *_ in rows]
    assert [kind for kind in kinds if kind != "gbt_linear"] == ["linear", "gbt", "tabm", "ensemble"]
    losses = {kind: float(loss) for kind, loss, *_ in rows}
    # A constant prediction reaches 0.67.
    assert max(losses.values()) < 0.67
    model = load(str(config)).config.model
    assert f"model {model.kind}\n" in drafted.out
    assert losses[model.kind] < min(losses.values()) + 0.1
    comments = re.findall(r"^  # (.*: loss .*)$", config.read_text(), re.MULTILINE)
    assert [line.split(":")[0] for line in comments] == kinds


def test_interrupted_fitting_leaves_a_valid_config_and_no_other_file(tmp_path: Path) -> None:
    # A short path, because the fork server's socket is in this folder.
    with tempfile.TemporaryDirectory() as temporary:
        process = start(
            *arguments(census(tmp_path / "census.csv"), "income", budget=200), environment={"TMPDIR": temporary}
        )
        assert process.stdout
        assert process.stdout.readline().startswith("fitting ensemble, linear")
        process.send_signal(signal.SIGINT)
        ended = wait(process)
        assert ended.exit_code == 128 + signal.SIGINT, ended.err
        assert "interrupted: the kind of model follows from" in ended.out
        assert load(str(tmp_path / "drafted.yaml")).config.model.kind == "ensemble"
        assert not [str(path) for path in Path(temporary).rglob("*")], ended


def test_used_up_budget_leaves_the_kind_for_the_size(tmp_path: Path) -> None:
    drafted, config = init(census(tmp_path / "census.csv"), "income", budget=0.1)
    assert (drafted.exit_code, drafted.err) == (0, ""), drafted.err
    assert re.search(r"^ensemble +- +did not end in time$", drafted.out, re.MULTILINE)
    assert "it was not fitted: did not end in time" in " ".join(drafted.out.split())
    assert load(str(config)).config.model.kind == "ensemble"


@pytest.mark.slow
def test_rare_classes_stop_no_run(tmp_path: Path) -> None:
    drafted, config = init(kinds(tmp_path / "kinds.csv"), "kind")
    assert drafted.exit_code == 0, drafted.err
    assert "too few rows to be learned or evaluated: 'rare0' (1)" in config.read_text()
    ended = command("--local", "--config", str(config), "--output", str(tmp_path / "out"), "--json")
    assert (ended.exit_code, ended.result["verdict"]) == (0, "blessed"), ended.out or ended.err
    assert ended.result["metrics"]["accuracy"] > 0.7
    assert np.isfinite(ended.result["metrics"]["crossentropy"])


def test_existing_config_is_not_overwritten_without_force(tmp_path: Path) -> None:
    data = census(tmp_path / "census.csv")
    (tmp_path / "drafted.yaml").write_text("mine")
    drafted, config = init(data, "income")
    assert (drafted.exit_code, config.read_text()) == (2, "mine")
    assert "drafted.yaml exists already" in drafted.err
    assert init(data, "income", "--force")[0].exit_code == 0
    assert config.read_text() != "mine"


@pytest.mark.parametrize(
    ("data", "label", "message"),
    [
        ("nothing.csv", "income", "nothing.csv"),
        ("census.csv", "incom", "the data has no column 'incom'; did you mean 'income'?"),
        ("census.csv", "experience + workclass", "cannot be computed"),
    ],
)
def test_table_or_label_that_will_not_do_is_rejected(data: str, label: str, message: str, tmp_path: Path) -> None:
    census(tmp_path / "census.csv")
    drafted, config = init(tmp_path / data, label)
    assert (drafted.exit_code, config.exists()) == (2, False)
    assert message in drafted.err
    assert "Traceback" not in drafted.err
