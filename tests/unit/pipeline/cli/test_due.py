"""Tests for `due`, which decides by the spans of the data whether a scheduled run has to train a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.base.errors import InputError
from pipeline.authoring.config import load
from pipeline.cli.due import decide
from tests.support.data import people
from tests.support.runs.command import light_command
from tests.support.runs.store_writer import Writer

_SCHEDULE = {"every": "@daily", "start": "2026-01-01", "only_if": "new_span"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the config of a pipeline whose data has the spans 3 and 4."""
    for span in (3, 4):
        (tmp_path / str(span)).mkdir()
        people.write(tmp_path / str(span) / "people.csv", people.rows(20))
    runtime = {"output": str(tmp_path / "out")}
    return people.write_config(
        tmp_path / "people.yaml", tmp_path / "{SPAN}" / "people.csv", schedule=_SCHEDULE, runtime=runtime
    )


def record_run(folder: Path, run: str, span: int, state: str = "COMPLETE", judged: bool = True) -> None:
    (folder / "out/people").mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / "out/people/metadata.db", "people")
    writer.execution(run, "ExampleGen", outputs=[writer.artifact("Examples", f"/{run}", span=span)])
    if judged:
        writer.execution(run, "Evaluator", outputs=[writer.artifact("ModelBlessing", f"/{run}/b", blessed=1)])
    writer.execution(run, "Trainer", state)


def test_run_is_due_before_the_first_run(config: Path):
    assert decide(load(str(config)).config)[:2] == (True, "no run has judged a model yet; the newest span is 4")


def test_run_is_due_if_the_last_successful_run_used_an_earlier_span(config: Path, tmp_path: Path):
    record_run(tmp_path, "r1", 3)
    assert decide(load(str(config)).config)[:2] == (
        True,
        "the newest span is 4, and the last run that judged a model took 3",
    )
    record_run(tmp_path, "r2", 4, "FAILED")
    assert decide(load(str(config)).config)[0]
    # A run that ended before the evaluation does not count, because no model has learned from its span.
    record_run(tmp_path, "r3", 4, judged=False)
    assert decide(load(str(config)).config)[0]
    record_run(tmp_path, "r4", 4)
    assert decide(load(str(config)).config)[0] is False
    ended = light_command("due", "--config", str(config))
    assert (ended.exit_code, ended.err) == (3, "")
    assert ended.out == "not due: the last run that judged a model took span 4, and there is none after it\n"
    assert decide(load(str(config), ["schedule.only_if=every"]).config)[0]


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("schedule.every='@often'", "five fields of cron"),
        ("schedule.every='* * *'", "five fields of cron"),
        ("schedule.start=soon", "schedule.start"),
        ("schedule={start: 2026-01-01, only_if: drift, span: date}", "expected span: newest"),
        ("schedule.drift=0", "greater than 0"),
        ("data.path=[people.csv]", r"schedule\.only_if: expected a data\.path with \{SPAN\}"),
    ],
)
def test_invalid_arguments_are_rejected(config: Path, assignment: str, message: str):
    with pytest.raises(InputError, match=message):
        load(str(config), [assignment])
