"""The verbs of the registry, as they are typed: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pushed import push

from components.version import KEY_ENVIRONMENT
from pipeline.commands.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(KEY_ENVIRONMENT, raising=False)
    for number in (1, 2, 3):
        push(tmp_path / "pushed", number)
    return tmp_path / "pushed"


@pytest.fixture
def say(folder: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    return Say(folder, capsys)


class Say:
    """Types a verb about the folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        code = main([*words, "--models", str(self.folder)])
        captured = self._capsys.readouterr()
        return code, captured.out.replace(str(self.folder), "PUSHED"), captured.err.replace(str(self.folder), "PUSHED")


def test_a_rollout_from_beginning_to_end(say: Say) -> None:
    assert say("promote", "1") == (0, "PUSHED: stable 1\n", "")
    assert say("canary", "2", "--percent", "12.5") == (0, "PUSHED: stable 1, canary 2 at 12.5 %\n", "")
    assert say("promote", "2", "--reason", "it holds") == (0, "PUSHED: stable 2\n", "")
    assert say("canary", "3", "--percent", "1") == (0, "PUSHED: stable 2, canary 3 at 1 %\n", "")
    assert say("rollback") == (0, "PUSHED: stable 1; it was stable 2, canary 3 at 1 %\n", "")
    assert say("rollback", "--to", "3")[:2] == (0, "PUSHED: stable 3; it was stable 1\n")
    assert say("canary", "2", "--percent", "50")[0] == 0
    assert say("canary", "--stop") == (0, "PUSHED: stable 3\n", "")
    assert say("promote", "3", "--stage", "none") == (0, "PUSHED: no stable version\n", "")


def test_the_list_tells_stage_and_manifest(say: Say) -> None:
    say("promote", "1")
    say("canary", "2", "--percent", "10")
    (say.folder / "3" / "manifest.json").unlink()
    code, out, err = say("models")
    head, third, second, first, problem = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["version", "stage", "pushed", "run", "metrics", "size", "digest", "manifest"]
    assert third.split() == ["3", "none"]
    assert problem == "PUSHED/3: expected a manifest.json, found none"
    assert second.split()[:4] == ["2", "canary", "10", "%"]
    assert "2026-11-21T16:24:01  20261121T162305-eb56  auc 0.93, binary_accuracy 0.9  0.0 MB" in first
    assert (first.split()[1], first.split()[-1]) == ("stable", "unsigned")


def test_the_list_as_json(say: Say) -> None:
    say("promote", "1")
    say("canary", "2", "--percent", "10", "--reason", "a try")
    told = json.loads(say("models", "--json")[1])
    assert (told["folder"], told["stable"], told["canary"]) == ("PUSHED", 1, {"version": 2, "percent": 10.0})
    assert [line["action"] for line in told["history"]] == ["promote", "canary"]
    assert told["history"][1]["reason"] == "a try"
    assert [row["version"] for row in told["versions"]] == [3, 2, 1]
    manifest = json.loads((say.folder / "1" / "manifest.json").read_text())
    assert told["versions"][2] == {
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
    }


def test_where_nothing_was_pushed_the_verbs_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_ENVIRONMENT, raising=False)
    say = Say(tmp_path / "empty", capsys)
    assert say("models")[0] == 2
    say.folder.mkdir()
    assert say("models") == say("verify") == (0, "PUSHED: no version was pushed yet\n", "")


def test_versions_as_they_were_pushed_pass(say: Say) -> None:
    code, out, err = say("verify")
    assert (code, err) == (0, "")
    assert [line.rpartition(",")[0] for line in out.splitlines()] == [
        f"{number}: as pushed; 2 files, unsigned" for number in (1, 2, 3)
    ]
    assert len(say("verify", "3", "1")[1].splitlines()) == 2


def test_a_version_with_one_byte_changed_is_refused(say: Say) -> None:
    file = say.folder / "2" / "variables" / "variables.index"
    file.write_bytes(b"valuez")
    code, out, err = say("verify")
    assert (code, err) == (3, "")
    told = "PUSHED/2/variables/variables.index is not what was pushed: its content differs"
    assert out.splitlines()[1] == f"2: refused: {told}"
    assert say("verify", "1", "3")[0] == 0
    code, out, err = say("promote", "2")
    assert (code, out) == (2, "")
    assert "is not what was pushed" in err


def test_signatures_are_looked_at_with_the_key(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    push(say.folder, 4, b"secret")
    assert ", signed, key not given, " in say("verify", "4")[1]
    monkeypatch.setenv(KEY_ENVIRONMENT, "secret")
    assert ", signed, " in say("verify", "4")[1]
    assert say("verify", "1")[:2] == (3, "1: refused: PUSHED/1/manifest.json: expected a signature, found none\n")
    monkeypatch.setenv(KEY_ENVIRONMENT, "another")
    assert say("verify", "4")[:2] == (3, "4: refused: PUSHED/4/manifest.json: the signature does not fit the key\n")
    monkeypatch.setenv(KEY_ENVIRONMENT, "")
    code, _, err = say("verify", "4")
    assert code == 2
    assert f"{KEY_ENVIRONMENT} is set, and empty" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("verify", "9"), "PUSHED has no version 9; the newest there is 3"),
        (("canary", "2"), "expected both VERSION and --percent P"),
        (("canary", "--percent", "2"), "expected both VERSION and --percent P"),
        (("canary",), "expected VERSION --percent P, or --stop alone"),
        (("canary", "2", "--stop"), "expected VERSION --percent P, or --stop alone"),
        (("canary", "--stop"), "there is no canary to stop: no stable version"),
    ],
)
def test_a_command_that_makes_no_sense(say: Say, words: tuple[str, ...], told: str) -> None:
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize("percent", ["0", "100", "ten", "0.001", "nan"])
def test_a_share_that_is_none(say: Say, percent: str) -> None:
    with pytest.raises(SystemExit) as raised:
        say("canary", "2", "--percent", percent)
    assert raised.value.code == 2


def test_a_damaged_state_is_told(say: Say) -> None:
    (say.folder / "registry.json").write_text("{")
    for words in (("models",), ("promote", "1"), ("rollback",), ("canary", "--stop")):
        code, _, err = say(*words)
        assert code == 2
        assert "registry.json is damaged" in err
    assert (say.folder / "registry.json").read_text() == "{"


def test_without_a_folder_the_config_names_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    push(folder, 4, b"secret")
    config = tmp_path / "trips.yaml"
    config.write_text(
        "data: {path: rows.csv, label: tips}\n"
        "features: {columns: {fare: z_score}}\n"
        "evaluation: {thresholds: {auc: {min: 0.5}}}\n"
        f"push: {{directory: {folder}, signing_key_env: MY_KEY}}\n"
    )
    assert main(["promote", "4", "--config", str(config)]) == 0
    assert 'name: "trips"' in (folder / "rollout" / "models.config").read_text()
    assert main(["promote", "1", "--config", str(config)]) == 2
    assert "expected a signature" in capsys.readouterr().err
