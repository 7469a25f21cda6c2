"""Invalid inputs: each ends in one headline, one remedy and an exit code, and creates no output."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.metadata.store import Store
from tests.support.data import people
from tests.support.runs.command import OWN_CODE, Ended, Runs, assert_nothing_half, call, command, light_command

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("small")]


@dataclass(frozen=True)
class Desk:
    """A folder with a valid config, whose rows are not written yet."""

    folder: Path
    data: Path
    output: Path
    """out/<pipeline>"""

    @property
    def arguments(self) -> tuple[str, ...]:
        return "--local", "--config", str(self.folder / "people.yaml"), "--output", str(self.output.parent)

    def config(self, **sections: Any) -> Path:
        return people.write_config(self.folder / "people.yaml", self.data, **sections)

    def refused(self, *arguments: str) -> Refusal:
        """Run a pipeline that must be refused before slow imports and before it writes anything."""
        refusal = Refusal(light_command(*self.arguments, *arguments))
        assert not (self.output / "pushed").exists()
        assert not (self.output / "logs").exists()
        return refusal


class Refusal:
    """The error that a user sees on the terminal."""

    def __init__(self, ended: Ended) -> None:
        lines = ended.err.splitlines()
        assert lines, ended.out
        assert lines[0].startswith("error: "), ended.err
        assert lines[-1].startswith("  remedy: "), ended.err
        self.exit_code = ended.exit_code
        self.headline = lines[0].removeprefix("error: ")
        self.details = lines[1:-1]
        self.remedy = lines[-1].removeprefix("  remedy: ")
        assert self.remedy


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path, tmp_path / "people.csv", tmp_path / "out" / "people")
    desk.config()
    return desk


# Errors that are found before TensorFlow is imported.


def test_missing_path(desk: Desk):
    (desk.folder / "peopel.csv").write_text("a;b\n1;2\n")
    refusal = desk.refused()
    assert refusal.exit_code == 2
    assert refusal.headline.startswith(f"data.path: {desk.data} does not exist; did you mean ")
    assert "peopel.csv" in refusal.headline


@pytest.mark.parametrize(
    ("content", "headline"),
    [
        pytest.param(b"", "{} has no rows: it is empty (0 bytes)", id="empty"),
        pytest.param(
            b"age;hours;city;income;spent\n", "{} has no rows: there is nothing below its header", id="header-only"
        ),
        pytest.param(gzip.compress(b"age;hours\n1;2\n")[:-9], "{}: the compressed data is damaged", id="cut-off-gzip"),
        pytest.param(b"\x7fELF\x02\x01\0\0" + bytes(range(256)), "{} is a binary file", id="binary"),
    ],
)
def test_file_that_is_no_table(desk: Desk, content: bytes, headline: str):
    desk.data.write_bytes(content)
    refusal = desk.refused()
    assert refusal.exit_code == 2
    assert refusal.headline.startswith(headline.format(desk.data))


def test_missing_label(desk: Desk):
    people.write(desk.data, people.rows(20))
    refusal = desk.refused("--set", "data.label=incom == '>50K'")
    assert refusal.exit_code == 2
    assert refusal.headline == (
        "--set data.label=incom == '>50K': data.label: the data has no column 'incom'; did you mean 'income'?"
    )


def test_missing_columns_are_reported_with_their_lines(desk: Desk):
    people.write(desk.data, people.rows(20))
    config = desk.config(features={"columns": {"agee": "z_score", "town": "vocab"}})
    refusal = desk.refused()
    assert (refusal.exit_code, refusal.headline) == (2, f"{config} has 2 errors")
    line = config.read_text().splitlines().index("    agee: z_score") + 1
    assert refusal.details == [
        f"  - {config}:{line}: features.columns.agee: the data has no column 'agee'; did you mean 'age'?",
        f"  - {config}:{line + 1}: features.columns.town: the data has no column 'town'; "
        "expected one of age, city, hours, income, spent",
    ]


def test_schema_with_a_column_that_the_data_lacks_stops_the_run(desk: Desk):
    people.write(desk.data, people.rows(20))
    schema = desk.folder / "people.pbtxt"
    schema.write_text(people.SCHEMA.replace('"spent"', '"height"'))
    config = desk.config(schema={"path": str(schema)})
    refusal = desk.refused()
    assert refusal.exit_code == 2
    line = config.read_text().splitlines().index(f"  path: {schema}") + 1
    assert refusal.details == [
        f"  - {config}:{line}: schema.path: {schema} requires a column 'height', and the data has none",
        f"  - {config}:{line}: schema.path: the data has a column 'spent', and {schema} does not list it",
    ]


@pytest.mark.parametrize("kind", ["text", "folder"])
def test_metadata_store_that_cannot_be_opened(desk: Desk, kind: str):
    people.write(desk.data, people.rows(20))
    store = desk.output / "metadata.db"
    store.parent.mkdir(parents=True)
    if kind == "folder":
        store.mkdir()
    else:
        store.write_text("no database, but long enough to be looked at " * 30)
    refusal = desk.refused()
    assert refusal.exit_code == 1
    assert refusal.headline.startswith(f"the metadata store {store} cannot be opened: ")
    assert "--output" in refusal.remedy


def test_output_folder_that_is_a_file(desk: Desk):
    people.write(desk.data, people.rows(20))
    desk.output.parent.write_text("in the way")
    refusal = desk.refused()
    assert refusal.exit_code == 2
    assert refusal.headline.startswith(f"cannot write to the output folder {desk.output}")
    assert "--output" in refusal.remedy


def test_push_folder_that_cannot_be_written(desk: Desk):
    people.write(desk.data, people.rows(20))
    refusal = desk.refused("--set", f"push.directory={desk.data}/models")
    assert refusal.exit_code == 2
    assert refusal.headline.startswith(f"cannot write to the push folder {desk.data}/models")
    assert "push.directory" in refusal.remedy


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (("rnu",), "unknown verb 'rnu'; did you mean 'run'?"),
        (("--locl",), "unknown option --locl; did you mean '--local'?"),
        (("--set", "training.steps"), "--set training.steps: expected section.field=value"),
        (
            ("--set", "training.stepz=3"),
            "--set training.stepz=3: training.stepz: unknown key; did you mean 'steps'?",
        ),
        (
            ("--set", "training.steps=many"),
            "--set training.steps=many: training.steps: expected a whole number, received 'many'",
        ),
        (("--config", "configs/taxy.yaml"), "no config at configs/taxy.yaml"),
        (("--from", "Trainr"), "--from/--to: the pipeline has no node 'Trainr'; did you mean 'Trainer'?"),
    ],
)
def test_slip_on_the_command_line(arguments: tuple[str, ...], headline: str):
    refusal = Refusal(light_command(*arguments))
    assert (refusal.exit_code, refusal.headline) == (2, headline)


def test_run_to_resume_that_never_was(desk: Desk):
    people.write(desk.data, people.rows(20))
    ended = light_command(*desk.arguments, "--json", "--resume", "latest")
    assert ended.exit_code == 2
    assert ended.result["error"]["headline"] == "--resume: expected a run of people, received 'latest'"
    assert "without --resume" in ended.result["error"]["remedy"]


def test_script_reads_every_refusal_as_json(desk: Desk):
    ended = light_command(*desk.arguments, "--json")
    assert (ended.exit_code, ended.err) == (2, "")
    assert (ended.result["state"], ended.result["exit_code"], ended.result["nodes"]) == ("failed", 2, {})
    assert ended.result["error"]["headline"].startswith(f"data.path: {desk.data} does not exist")


# Errors that only a node can detect.


@pytest.mark.slow
def test_ragged_rows(desk: Desk):
    people.write(desk.data, people.rows(20))
    with desk.data.open("a") as file:
        file.write("40;30;Paris\n1;2;3;4;5;6;7\n")
    ended = command(*desk.arguments, "--json")
    error = ended.result["error"]
    assert (ended.exit_code, ended.nodes("failed")) == (2, {"ExampleGen"})
    # The header is row 1, as in an editor.
    assert error["headline"] == f"{desk.data}, row 22: expected 5 fields, received 3"
    assert error["details"] == [f"{desk.data}, row 23: expected 5 fields, received 7"]
    assert error["remedy"].startswith("fix or remove these rows")
    assert_nothing_half(desk.output, ended.result["run"])


def test_label_expression_that_is_constant(small: Runs):
    before = small.pushed
    one_feature = ("--set", "features.columns={hours: z_score}")
    ended = small.again("--set", "data.label=income == 'a million'", *one_feature)
    error = ended.result["error"]
    assert (ended.exit_code, ended.nodes("failed")) == (2, {"Trainer"})
    assert re.fullmatch(
        r"data.label: \"income == 'a million'\" is constant: all \d+ training rows hold 0", error["headline"]
    )
    assert error["remedy"]
    assert small.pushed == before


@pytest.mark.both_lines
def test_gate_stops_what_does_not_fit(misfits: Runs):
    stopped = misfits.first
    result = stopped.result
    assert (stopped.exit_code, result["state"]) == (3, "rejected")
    assert stopped.nodes("failed") == {"DataGate"}
    assert stopped.nodes("not run") == {"Transform", "Trainer", "LatestBlessedModel", "Evaluator", "Pusher"}
    assert re.fullmatch(r"the data gate stops the run: \d+ findings in the data", result["error"]["headline"])
    assert "validation.action" in result["error"]["remedy"]
    assert_nothing_half(misfits.output, result["run"])


@pytest.mark.both_lines
@pytest.mark.parametrize(
    ("feature", "value_and_threshold", "remedy"),
    [
        ("city", r"Unexpected string values.*Atlantis.*\d%.*the threshold is 0%.*", r"add the values .*people\.pbtxt"),
        (
            "hours",
            r"Out-of-range values.*500; expected at least 0 and at most 80",
            r"widen .* range in .*people\.pbtxt",
        ),
        ("vip", r"the label is missing in \d+ of \d+ rows; the threshold is 0", "fill in the label"),
        ("vip", r"the label is constant: '1' in all \d+ rows; expected at least 2 values", "choose another label"),
    ],
    ids=["unexpected-value", "out-of-range", "label-missing", "label-constant"],
)
def test_gate_reports_feature_value_threshold_and_remedy(
    misfits: Runs, feature: str, value_and_threshold: str, remedy: str
):
    for split in ("train", "eval"):
        line = re.compile(rf"{split}: {feature}: .*{value_and_threshold}.* \[.*{remedy}.*\]")
        details = misfits.first.result["error"]["details"]
        assert [detail for detail in details if line.fullmatch(detail)], details


def test_gate_that_only_warns_lets_the_run_go_on(misfits: Runs):
    ended = misfits.again("--set", "validation.action=warn", "--to", "DataGate")
    assert (ended.exit_code, ended.result["state"], ended.states["DataGate"]) == (0, "done", "done")
    log = Path(ended.result["nodes"]["DataGate"]["log"]).read_text()
    assert all(f"data gate: {line}" in log for line in misfits.first.result["error"]["details"])


@pytest.mark.slow
def test_model_below_a_slice_threshold_is_rejected_unless_forced(small: Runs):
    before = small.pushed
    # A bound that no model meets, with slices limited to a minimum number of rows.
    fields = "evaluation.slice_thresholds={city: {auc: {min: 1.1}}, city = Atlantis: {auc: {min: 1.1}}}"
    sets = ("--set", fields, "--set", "evaluation.min_examples=20")
    turned_away = small.again(*sets)
    result = turned_away.result
    assert (turned_away.exit_code, result["verdict"], result["forced"]) == (3, "not blessed", None)
    failed = [check for check in result["checks"] if not check["passed"]]
    assert {check["slice"]["city"] for check in failed} == {"Łódź", "Paris", "New; York"}
    [missing] = [check for check in result["checks"] if check["slice"] == {"city": "Atlantis"}]
    assert missing["why"] == "not judged: 0 rows of 20"
    assert small.pushed == before

    forced = small.again(*sets, "--force-bless", "the city is new")
    result = forced.result
    assert (forced.exit_code, result["verdict"], result["forced"]) == (0, "blessed", "the city is new")
    assert [check for check in result["checks"] if not check["passed"]] == failed
    assert small.pushed == [*before, result["pushed_version"]]
    store = Store(small.output / "metadata.db")
    [blessing] = store.artifacts(result["run"], "ModelBlessing")
    assert (blessing.properties["blessed"], blessing.properties["forced"]) == (1, "the city is new")

    # The override was for that run only, and the next run does not repeat the evaluation.
    again = small.again(*sets)
    assert (again.exit_code, again.result["verdict"], again.result["forced"]) == (3, "not blessed", None)
    assert "Evaluator" in again.nodes("cached")


def test_model_is_not_forced_without_a_reason(desk: Desk):
    refusal = desk.refused("--force-bless", " ")
    assert (refusal.exit_code, refusal.headline) == (2, "--force-bless: expected a reason, received none")


# Use a small disk.


def small_disk(megabytes: int, mount: Path, *line: str, environment: dict[str, str] | None = None) -> Ended:
    """Run a command that sees a private disk at `mount`, which ends with the command."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounting a small disk takes root")
    mount.mkdir(parents=True)
    script = 'mount -t tmpfs -o size="$1"m tmpfs "$2" || exit 77; shift 2; exec "$@"'
    ended = call(["unshare", "--mount", "sh", "-c", script, "sh", str(megabytes), str(mount), *line], environment)
    if ended.exit_code == 77 or ended.err.startswith("unshare:"):
        pytest.skip(f"no right to mount here: {ended.err}")
    return ended


def test_disk_that_is_nearly_full(desk: Desk):
    people.write(desk.data, people.rows(20))
    refusal = Refusal(small_disk(100, desk.output.parent, sys.executable, "runner.py", *desk.arguments))
    assert refusal.exit_code == 1
    assert re.fullmatch(
        rf"the disk is nearly full: \d+ MB free at {re.escape(str(desk.output))}, and a run needs 200 MB",
        refusal.headline,
    )
    assert "--output" in refusal.remedy


@pytest.mark.slow
def test_disk_that_fills_up_while_a_node_writes(own: Runs, tmp_path: Path):
    disk, deed = tmp_path / "disk", tmp_path / "deed"
    deed.write_text(f"fill {disk / 'filler'}")
    line = (sys.executable, "runner.py", *own.arguments, "--output", str(disk))
    ended = small_disk(260, disk, *line, environment={**OWN_CODE, "OWN_CODE_DEED": str(deed)})
    assert (ended.exit_code, ended.result["state"]) == (1, "failed")
    assert ended.nodes("failed") == {"Transform"}
    assert ended.result["error"]["headline"].startswith("the disk is full: ")
    assert "--resume" in ended.result["error"]["remedy"]
    assert ended.result["pushed"] is None
