"""Tests for the output and the exit codes of the registry's commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.pusher import serving_state
from components.pusher.serving_state import Stages
from pipeline.cli.main import main
from tests.support.runs.pushed import push


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        push(tmp_path / "pushed", number)
    return tmp_path / "pushed"


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(folder, capsys)


class Command:
    """A function that runs commands on a push folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Run a command, and return the exit code, the standard output and the standard error."""
        code = main([*words, "--models", str(self.folder)])
        captured = self._capsys.readouterr()
        return code, captured.out.replace(str(self.folder), "PUSHED"), captured.err.replace(str(self.folder), "PUSHED")


def test_commands_print_the_stages_during_a_rollout(command: Command) -> None:
    assert command("models", "promote", "1") == (0, "PUSHED: stable 1\n", "")
    assert command("models", "canary", "2", "--percent", "12.5") == (0, "PUSHED: stable 1, canary 2 at 12.5 %\n", "")
    assert command("models", "promote", "2", "--reason", "it holds") == (0, "PUSHED: stable 2\n", "")
    assert command("models", "canary", "3", "--percent", "1") == (0, "PUSHED: stable 2, canary 3 at 1 %\n", "")
    assert command("models", "rollback") == (0, "PUSHED: stable 1; it was stable 2, canary 3 at 1 %\n", "")
    assert command("models", "rollback", "3")[:2] == (0, "PUSHED: stable 3; it was stable 1\n")
    assert command("models", "canary", "2", "--percent", "50")[0] == 0
    assert command("models", "canary", "--stop") == (0, "PUSHED: stable 3\n", "")
    assert command("models", "promote", "3", "--stage", "none") == (0, "PUSHED: no stable version\n", "")


def test_list_shows_stage_and_manifest(command: Command) -> None:
    command("models", "promote", "1")
    command("models", "canary", "2", "--percent", "10")
    (command.folder / "3" / "manifest.json").unlink()
    code, out, err = command("models")
    head, third, second, first, problem = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["version", "stage", "pushed", "run", "metrics", "size", "digest", "manifest"]
    assert third.split() == ["3", "none"]
    assert problem == "PUSHED/3: expected a manifest.json, found none"
    assert second.split()[:4] == ["2", "canary", "10", "%"]
    assert "2026-11-21T16:24:01  20261121T162305-eb56  auc 0.93, binary_accuracy 0.9  0.0 MB" in first
    assert (first.split()[1], first.split()[-1]) == ("stable", "unsigned")


def test_list_is_printed_as_json(command: Command) -> None:
    command("models", "promote", "1")
    command("models", "canary", "2", "--percent", "10", "--reason", "a try")
    record = json.loads(command("models", "--json")[1])
    assert (record["folder"], record["stable"], record["canary"]) == (
        "PUSHED",
        1,
        {"version": 2, "percent": 10.0},
    )
    assert [line["action"] for line in record["history"]] == ["promote", "canary"]
    assert record["history"][1]["reason"] == "a try"
    assert [row["version"] for row in record["versions"]] == [3, 2, 1]
    manifest = json.loads((command.folder / "1" / "manifest.json").read_text())
    assert record["versions"][2] == {
        "version": 1,
        "stage": "stable",
        "manifest": "unsigned",
        "created": "2026-11-21T16:24:01+00:00",
        "run": "20261121T162305-eb56",
        "spans": [3, 4],
        "metrics": {"auc": 0.93, "binary_accuracy": 0.9, "calibration": 1.0},
        "blessed_by": "thresholds",
        "bytes": 5006,
        "digest": manifest["digest"],
        "problem": None,
        "approval": None,
    }


def test_empty_push_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(tmp_path / "empty", capsys)
    assert command("models")[0] == 2
    command.folder.mkdir()
    assert command("models") == command("models", "verify") == (0, "PUSHED: no version was pushed yet\n", "")


def test_unchanged_versions_pass_verification(command: Command) -> None:
    code, out, err = command("models", "verify")
    assert (code, err) == (0, "")
    assert [line.rpartition(",")[0] for line in out.splitlines()] == [
        f"{number}: as pushed; 2 files, unsigned" for number in (1, 2, 3)
    ]
    assert len(command("models", "verify", "3", "1")[1].splitlines()) == 2


def test_signed_version_is_listed_as_signed(command: Command) -> None:
    (command.folder / "2" / "model.sig").write_text("{}")
    assert [line.split(", ")[1] for line in command("models", "verify")[1].splitlines()] == [
        "unsigned",
        "signed",
        "unsigned",
    ]
    listed = json.loads(command("models", "--json")[1])["versions"]
    assert {entry["version"]: entry["manifest"] for entry in listed} == {1: "unsigned", 2: "signed", 3: "unsigned"}


def test_version_with_one_byte_changed_is_rejected(command: Command) -> None:
    file = command.folder / "2" / "variables" / "variables.index"
    file.write_bytes(b"valuez")
    code, out, err = command("models", "verify")
    assert (code, err) == (3, "")
    expected = "PUSHED/2/variables/variables.index was changed after the push: its content differs"
    assert out.splitlines()[1] == f"2: refused: {expected}"
    assert command("models", "verify", "1", "3")[0] == 0
    code, out, err = command("models", "promote", "2")
    assert (code, out) == (2, "")
    assert "was changed after the push" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("models", "verify", "9"), "PUSHED has no version 9; the newest is 3"),
        (("models", "canary", "2"), "expected both VERSION and --percent P"),
        (("models", "canary", "--percent", "2"), "expected both VERSION and --percent P"),
        (
            (
                "models",
                "canary",
            ),
            "expected VERSION --percent P, or only --stop",
        ),
        (("models", "canary", "2", "--stop"), "expected VERSION --percent P, or only --stop"),
        (("models", "canary", "--stop"), "there is no canary to stop: no stable version"),
    ],
)
def test_invalid_arguments_are_an_error(command: Command, words: tuple[str, ...], expected: str) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert expected in err


@pytest.mark.parametrize("percent", ["0", "100", "ten", "0.001", "nan"])
def test_invalid_share_is_an_error(command: Command, percent: str) -> None:
    with pytest.raises(SystemExit) as raised:
        command("models", "canary", "2", "--percent", percent)
    assert raised.value.code == 2


def test_damaged_state_is_reported(command: Command) -> None:
    (command.folder / "registry.json").write_text("{")
    for words in (
        ("models",),
        ("models", "promote", "1"),
        (
            "models",
            "rollback",
        ),
        ("models", "canary", "--stop"),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert "registry.json is damaged" in err
    assert (command.folder / "registry.json").read_text() == "{"


def test_push_folder_is_read_from_the_config(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "")
    config = tmp_path / "trips.yaml"
    config.write_text(
        "data: {path: rows.csv, label: tips}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"push: {{directory: {folder}}}\n"
    )
    assert main(["models", "promote", "3", "--config", str(config)]) == 0
    assert 'name: "trips"' in (folder / "rollout" / "models.config").read_text()
    config.write_text(
        config.read_text().replace(f"{folder}}}", f"{folder}, model_signing: {{public_key_env: MY_KEY}}}}")
    )
    assert main(["models", "promote", "1", "--config", str(config)]) == 2
    assert "MY_KEY: expected the PEM file of a key" in capsys.readouterr().err


def test_mirror_copies_the_versions_that_serve(command: Command, tmp_path: Path) -> None:
    into = tmp_path / "mirror" / "taxi"
    code, out, err = command("models", "mirror", "--into", str(into))
    assert (code, out) == (2, "")
    assert "PUSHED: expected a stable version to copy, found none" in err
    for number in (1, 2, 3):
        command("models", "promote", str(number))
    assert command("models", "mirror", "--into", str(into)) == (0, f"{into}: stable 3\n", "")
    # A rollback would return to version 2.
    assert serving_state.versions(into) == [2, 3]
    state = serving_state.read(into)
    assert (state.stages, state.history) == (Stages(stable=3), serving_state.read(command.folder).history)
    config = (into / "rollout" / "models.config").read_text()
    assert f'name: "taxi" base_path: "{into}"' in " ".join(config.split())
    command("models", "rollback")
    command("models", "canary", "3", "--percent", "5")
    assert command("models", "mirror", "--into", str(into))[1] == f"{into}: stable 2, canary 3 at 5 %\n"
    assert serving_state.versions(into) == [1, 2, 3]


def test_mirror_refuses_a_damaged_version(command: Command, tmp_path: Path) -> None:
    command("models", "promote", "1")
    (command.folder / "1" / "saved_model.pb").write_bytes(b"damaged")
    code, _, err = command("models", "mirror", "--into", str(tmp_path / "mirror"))
    assert code == 2
    assert "1/saved_model.pb was changed after the push" in err
    assert serving_state.versions(tmp_path / "mirror") == []
    assert not list((tmp_path / "mirror").glob(".push-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--into", "s3://bucket/models"), "--into: expected a folder on this machine, received s3://bucket/models"),
        (("--into", "folder", "--every", "0"), "--every: expected a number above 0, received 0"),
    ],
)
def test_mirror_refuses_impossible_options(command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command("models", "mirror", *arguments)
    assert (code, out) == (2, "")
    assert message in err
