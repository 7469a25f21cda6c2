"""Tests of the serving state of a push folder: reading, writing, the history, and the target of a rollback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from components.base.errors import InputError
from components.pusher import serving_state
from components.pusher.serving_state import Action, Canary, Stages, State


def after(*changes: tuple[Action, int | None]) -> State:
    now = State()
    for action, stable in changes:
        now = now.change_stages(action, Stages(stable=stable), "me")
    return now


def test_state_without_a_file_is_empty(tmp_path: Path) -> None:
    assert serving_state.read(tmp_path) == serving_state.read(tmp_path / "none") == State()


def test_saved_state_can_be_read(tmp_path: Path) -> None:
    canary = Stages(stable=1, canary=Canary(version=2, percent=12.5))
    now = after(("promote", 1)).change_stages("canary", canary, "you", "to see")
    serving_state.save(tmp_path, now)
    assert serving_state.read(tmp_path) == now
    fields = json.loads((tmp_path / "registry.json").read_text())
    assert (fields["format"], fields["stable"], fields["canary"]) == (1, 1, {"version": 2, "percent": 12.5})
    last = fields["history"][-1]
    assert (last["action"], last["by"], last["reason"]) == ("canary", "you", "to see")
    assert (last["from"], last["to"]) == (
        {"stable": 1, "canary": None},
        {"stable": 1, "canary": {"version": 2, "percent": 12.5}},
    )
    assert [path.name for path in tmp_path.iterdir()] == ["registry.json"]


def test_equal_stages_do_not_change_the_state() -> None:
    now = after(("promote", 1))
    assert now.change_stages("promote", Stages(stable=1), "me") is now


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "EOF while parsing a value"),
        ('{"format": 1, "stable": 1', "EOF while parsing an object"),
        ("[" * 200_000, "recursion limit exceeded"),
        ("[]", "Input should be"),
        ('{"format": 2}', "format: Input should be 1"),
        ('{"stable": "one"}', "stable: "),
        ('{"stabel": 1}', "stabel: Extra inputs are not permitted"),
        ('{"stable": 1, "canary": {"version": 2, "percent": 100}}', "canary.percent: "),
    ],
)
def test_damaged_file_is_an_error_and_is_not_changed(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "registry.json").write_text(content)
    with pytest.raises(InputError) as raised:
        serving_state.read(tmp_path)
    assert raised.value.headline.startswith(f"{tmp_path}/registry.json is damaged: ")
    assert message in raised.value.headline
    assert "restore a copy" in raised.value.remedy
    assert (tmp_path / "registry.json").read_text() == content


@pytest.mark.parametrize("percent", [0, 100, -1, 0.001, 33.333])
def test_invalid_share_is_an_error(percent: float) -> None:
    with pytest.raises(ValidationError):
        Canary(version=1, percent=percent)


@pytest.mark.parametrize(
    ("changes", "existing", "previous"),
    [
        ((), {1, 2}, None),
        ((("promote", 1),), {1, 2}, None),
        ((("promote", 1), ("promote", 2)), {1, 2}, 1),
        ((("promote", 1), ("promote", 2), ("promote", 3)), {1, 3}, 1),
        ((("promote", 1), ("promote", 2)), {2}, None),
        # A second rollback goes to the version before the target of the first.
        ((("promote", 1), ("promote", 2), ("promote", 3), ("rollback", 2)), {1, 2, 3}, 1),
        ((("promote", 1), ("promote", 2), ("promote", 3), ("rollback", 2), ("rollback", 1)), {1, 2, 3}, None),
        ((("promote", 1), ("promote", 2), ("rollback", 1), ("promote", 3)), {1, 2, 3}, 1),
        ((("promote", 1), ("promote", 2), ("rollback", 5)), {1, 2, 5}, 2),
        ((("promote", 1), ("promote", 2), ("promote", 1), ("rollback", 2)), {1, 2}, 1),
        # Without a stable version, a rollback goes to the latest stable version.
        ((("promote", 1), ("promote", 2), ("unstage", None)), {1, 2}, 2),
    ],
)
def test_rollback_goes_to_the_previous_stable_version_that_exists(
    changes: tuple[tuple[Action, int | None], ...], existing: set[int], previous: int | None
) -> None:
    assert after(*changes).previous(existing) == previous


def test_lock_of_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write to the push folder"), serving_state.lock(tmp_path / "none"):
        pass


def test_only_folders_with_numbers_as_names_are_versions(tmp_path: Path) -> None:
    for name in ("10", "9", ".push-11", "rollout", "12a", "٣"):
        (tmp_path / name).mkdir()
    (tmp_path / "13").write_text("")
    assert serving_state.versions(tmp_path) == [9, 10]
    assert serving_state.versions(tmp_path / "none") == []
