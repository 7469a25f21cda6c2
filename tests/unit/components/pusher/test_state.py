"""The state of a push folder: whole at any moment, never lost, and it knows the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.errors import InputError
from components.pusher import state
from components.pusher.state import Action, Canary, Stages, State


def after(*changes: tuple[Action, int | None]) -> State:
    now = State()
    for action, stable in changes:
        now = now.changed(action, Stages(stable=stable), "me")
    return now


def test_where_nothing_was_staged_the_state_is_empty(tmp_path: Path) -> None:
    assert state.read(tmp_path) == state.read(tmp_path / "none") == State()


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    canary = Stages(stable=1, canary=Canary(version=2, percent=12.5))
    now = after(("promote", 1)).changed("canary", canary, "you", "to see")
    state.save(tmp_path, now)
    assert state.read(tmp_path) == now
    told = json.loads((tmp_path / "registry.json").read_text())
    assert (told["format"], told["stable"], told["canary"]) == (1, 1, {"version": 2, "percent": 12.5})
    last = told["history"][-1]
    assert (last["action"], last["by"], last["reason"]) == ("canary", "you", "to see")
    assert (last["from"], last["to"]) == (
        {"stable": 1, "canary": None},
        {"stable": 1, "canary": {"version": 2, "percent": 12.5}},
    )
    assert [path.name for path in tmp_path.iterdir()] == ["registry.json"]


def test_what_changes_nothing_is_no_change() -> None:
    now = after(("promote", 1))
    assert now.changed("promote", Stages(stable=1), "me") is now


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Expecting value"),
        ('{"format": 1, "stable": 1', "Expecting"),
        ("[]", "Input should be"),
        ('{"format": 2}', "format: Input should be 1"),
        ('{"stable": "one"}', "stable: "),
        ('{"stabel": 1}', "stabel: Extra inputs are not permitted"),
        ('{"stable": 1, "canary": {"version": 2, "percent": 100}}', "canary.percent: "),
    ],
)
def test_a_damaged_file_is_told_and_kept(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "registry.json").write_text(content)
    with pytest.raises(InputError) as raised:
        state.read(tmp_path)
    assert raised.value.headline.startswith(f"{tmp_path}/registry.json is damaged: ")
    assert told in raised.value.headline
    assert "put back a copy" in raised.value.remedy
    assert (tmp_path / "registry.json").read_text() == content


@pytest.mark.parametrize("percent", [0, 100, -1, 0.001, 33.333])
def test_a_share_is_between_all_and_nothing(percent: float) -> None:
    with pytest.raises(ValidationError):
        Canary(version=1, percent=percent)


@pytest.mark.parametrize(
    ("changes", "there", "previous"),
    [
        ((), {1, 2}, None),
        ((("promote", 1),), {1, 2}, None),
        ((("promote", 1), ("promote", 2)), {1, 2}, 1),
        ((("promote", 1), ("promote", 2), ("promote", 3)), {1, 3}, 1),
        ((("promote", 1), ("promote", 2)), {2}, None),
        # A rollback goes further back each time, not to and fro.
        ((("promote", 1), ("promote", 2), ("promote", 3), ("rollback", 2)), {1, 2, 3}, 1),
        ((("promote", 1), ("promote", 2), ("promote", 3), ("rollback", 2), ("rollback", 1)), {1, 2, 3}, None),
        ((("promote", 1), ("promote", 2), ("rollback", 1), ("promote", 3)), {1, 2, 3}, 1),
        ((("promote", 1), ("promote", 2), ("rollback", 5)), {1, 2, 5}, 2),
        ((("promote", 1), ("promote", 2), ("promote", 1), ("rollback", 2)), {1, 2}, 1),
        # Where nothing serves, the way back leads to what did.
        ((("promote", 1), ("promote", 2), ("unstage", None)), {1, 2}, 2),
    ],
)
def test_the_way_back(changes: tuple[tuple[Action, int | None], ...], there: set[int], previous: int | None) -> None:
    assert after(*changes).previous(there) == previous


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write to the push folder"), state.alone(tmp_path / "none"):
        pass


def test_only_folders_named_by_a_number_are_versions(tmp_path: Path) -> None:
    for name in ("10", "9", ".push-11", "rollout", "12a", "٣"):
        (tmp_path / name).mkdir()
    (tmp_path / "13").write_text("")
    assert state.versions(tmp_path) == [9, 10]
    assert state.versions(tmp_path / "none") == []
