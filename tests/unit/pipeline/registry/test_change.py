"""Stages of pushed versions: every change checks the version, is written down, and reaches the rollout's files."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from pushed import push

from components.errors import InputError
from components.pusher import rollout, state
from components.pusher.config import RolloutConfig
from components.pusher.state import Canary, Stages, State
from pipeline.registry import change
from pipeline.registry.place import Place

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for number in range(1, 5):
        push(tmp_path / "pushed", number)
    return Place(str(tmp_path / "pushed"), None, None)


def labels(place: Place) -> str:
    return (Path(place.folder) / rollout.FOLDER / "models.config").read_text()


def test_from_the_first_version_to_a_rollback(place: Place) -> None:
    assert change.promote(place, 1).stages == Stages(stable=1)
    canary = Canary(version=2, percent=10)
    assert change.canary(place, 2, 10, "a try").stages == Stages(stable=1, canary=canary)
    assert 'version_labels { key: "canary" value: 2 }' in labels(place)
    assert change.canary(place, 2, 50).canary == Canary(version=2, percent=50)
    # Another version becomes stable while a canary runs: the canary goes on.
    assert change.promote(place, 3).stages == Stages(stable=3, canary=Canary(version=2, percent=50))
    assert change.promote(place, 2).stages == Stages(stable=2)
    assert change.canary(place, 4, 1).stages == Stages(stable=2, canary=Canary(version=4, percent=1))
    assert change.rollback(place).stages == Stages(stable=3)
    assert change.rollback(place, reason="worse still").stages == Stages(stable=1)
    assert 'version_labels { key: "stable" value: 1 }' in labels(place)
    history = state.read(place.folder).history
    assert [line.action for line in history] == [
        "promote",
        "canary",
        "canary",
        "promote",
        "promote",
        "canary",
        "rollback",
        "rollback",
    ]
    assert (history[1].reason, history[-1].reason) == ("a try", "worse still")
    assert all(earlier.after == later.before for earlier, later in itertools.pairwise(history))
    assert all(line.by for line in history)


def test_a_stage_can_be_given_up(place: Place) -> None:
    change.promote(place, 1)
    change.canary(place, 2, 10)
    assert change.unstage(place, 2).stages == Stages(stable=1)
    change.canary(place, 2, 10)
    assert change.stop(place).stages == Stages(stable=1)
    assert change.unstage(place, 1).stages == Stages()
    assert labels(place) == "model_config_list {\n}\n"
    assert change.rollback(place).stages == Stages(stable=1)


def test_a_rollback_may_be_told_where_to(place: Place) -> None:
    for number in (1, 2, 3):
        change.promote(place, number)
    assert change.rollback(place, to=1).stages == Stages(stable=1)
    assert change.rollback(place, to=4).stages == Stages(stable=4)


REFUSED: dict[str, tuple[Callable[[Place], State], str]] = {
    "a version that is not there": (lambda place: change.promote(place, 9), "has no version 9; the newest there is 4"),
    "a canary of all": (lambda place: change.canary(place, 1, 10), "version 1 is the stable one"),
    "no stage to give up": (lambda place: change.unstage(place, 2), "version 2 has no stage: stable 1"),
    "no canary to stop": (change.stop, "there is no canary to stop: stable 1"),
    "no way back": (change.rollback, "nothing to go back to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(place: Place, case: str) -> None:
    change.promote(place, 1)
    before = state.read(place.folder)
    act, told = REFUSED[case]
    with pytest.raises(InputError, match=told):
        act(place)
    assert state.read(place.folder) == before


def test_a_canary_needs_a_stable_version(place: Place) -> None:
    with pytest.raises(InputError, match="expected a stable version") as raised:
        change.canary(place, 2, 10)
    assert "promote 2" in raised.value.remedy


@pytest.mark.parametrize(
    "act", [change.promote, lambda place, number: change.canary(place, number, 5), change.rollback]
)
def test_a_version_that_was_tampered_with_gets_no_stage(place: Place, act: Callable[[Place, int], State]) -> None:
    change.promote(place, 1)
    file = Path(place.folder, "2", "saved_model.pb")
    content = file.read_bytes()
    file.write_bytes(content[:77] + b"X" + content[78:])
    with pytest.raises(InputError, match=r"2/saved_model\.pb is not what was pushed"):
        act(place, 2)
    assert state.read(place.folder).stages == Stages(stable=1)


def test_with_a_key_what_is_not_signed_gets_no_stage(place: Place) -> None:
    push(Path(place.folder), 5, b"key")
    place = Place(place.folder, b"key", None)
    with pytest.raises(InputError, match="expected a signature"):
        change.promote(place, 4)
    assert change.promote(place, 5).stable == 5


def test_settings_stay_unless_a_config_brings_others(place: Place) -> None:
    change.promote(place, 1)
    assert 'name: "taxi"' in labels(place)
    mine = RolloutConfig(model_name="trips", base_path="/models/trips")
    change.promote(Place(place.folder, None, mine), 1)
    assert len(state.read(place.folder).history) == 1
    change.promote(place, 2)
    assert 'name: "trips"' in labels(place)
    assert 'base_path: "/models/trips"' in labels(place)


def test_the_same_again_writes_the_files_anew(place: Place) -> None:
    change.promote(place, 1)
    (Path(place.folder) / rollout.FOLDER / "models.config").unlink()
    change.promote(place, 1)
    assert "value: 1" in labels(place)
    assert len(state.read(place.folder).history) == 1


def test_no_change_is_lost_among_many(place: Place) -> None:
    processes = [CONTEXT.Process(target=change.promote, args=(place, number)) for number in (1, 2, 3, 4)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        state.read(place.folder)
    for process in processes:
        process.join()
    history = state.read(place.folder).history
    assert {line.after.stable for line in history} == {1, 2, 3, 4}
    assert len(history) == 4
    assert f'key: "stable" value: {history[-1].after.stable}' in labels(place)


def test_in_an_object_store_there_are_no_stages() -> None:
    place = Place("gs://bucket/models", None, None)
    for act in (change.stop, change.rollback, lambda place: change.promote(place, 1)):
        with pytest.raises(InputError, match="stages are kept beside versions on a file system"):
            act(place)
