"""Tests for the stages of pushed versions. Every change verifies the version and updates the rollout's files."""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.pusher.config import RolloutConfig
from components.pusher.serving_state import Canary, Stages, State
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.runs.push_folders import KINDS, REAL, Files
from tests.support.runs.push_folders import push_folder as make_push_folder

CONTEXT = multiprocessing.get_context("spawn")


@pytest.fixture(params=[*KINDS, *REAL])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    with make_push_folder(request.param, tmp_path) as files:
        for number in range(1, 5):
            files.push(number)
        yield files


@pytest.fixture
def push_folder(files: Files) -> PushFolder:
    return PushFolder(files.path, None)


def read_labels(files: Files) -> str:
    return files.read("rollout/models.config").decode()


def test_stages_change_from_the_first_version_to_a_rollback(push_folder: PushFolder, files: Files) -> None:
    assert promotion.promote(push_folder, 1).stages == Stages(stable=1)
    canary = Canary(version=2, percent=10)
    assert promotion.set_canary(push_folder, 2, 10, "a try").stages == Stages(stable=1, canary=canary)
    assert 'version_labels { key: "canary" value: 2 }' in read_labels(files)
    assert promotion.set_canary(push_folder, 2, 50).canary == Canary(version=2, percent=50)
    # If another version becomes stable while a canary runs, the canary keeps its share.
    assert promotion.promote(push_folder, 3).stages == Stages(stable=3, canary=Canary(version=2, percent=50))
    assert promotion.promote(push_folder, 2).stages == Stages(stable=2)
    assert promotion.set_canary(push_folder, 4, 1).stages == Stages(stable=2, canary=Canary(version=4, percent=1))
    assert promotion.rollback(push_folder).stages == Stages(stable=3)
    assert promotion.rollback(push_folder, reason="worse still").stages == Stages(stable=1)
    assert 'version_labels { key: "stable" value: 1 }' in read_labels(files)
    history = push_folder.state().history
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


def test_servers_read_a_new_version_before_a_label_moves_to_it(
    push_folder: PushFolder, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow Serving refuses a file that moves a label to a version that no earlier file has named."""
    announced: list[tuple[set[int], dict[str, int]]] = []

    def read_file(*_: object) -> None:
        text = read_labels(files)
        labels = re.findall(r'key: "(\w+)" value: (\d+)', text)
        announced.append((set(map(int, re.findall(r"versions: (\d+)", text))), {key: int(to) for key, to in labels}))

    monkeypatch.setattr(importlib.import_module("components.pusher.rollout.write"), "wait_until_listed", read_file)
    promotion.promote(push_folder, 1)
    # The first labels move nowhere.
    assert announced == []
    promotion.set_canary(push_folder, 2, 10)
    assert announced == [({1, 2}, {"stable": 1, "canary": 1})]
    # Servers have the canary and the previous version.
    promotion.promote(push_folder, 2)
    promotion.rollback(push_folder)
    assert len(announced) == 1
    promotion.promote(push_folder, 4)
    assert announced[1:] == [({1, 4}, {"stable": 1, "canary": 1})]
    assert 'key: "stable" value: 4' in read_labels(files)
    # After an empty file, servers have no labels.
    promotion.unstage(push_folder, 4)
    promotion.promote(push_folder, 3)
    # A server of another model has other labels.
    promotion.promote(PushFolder(push_folder.path, RolloutConfig(model_name="trips")), 2)
    assert len(announced) == 2


def test_version_can_be_unstaged(push_folder: PushFolder, files: Files) -> None:
    promotion.promote(push_folder, 1)
    promotion.set_canary(push_folder, 2, 10)
    assert promotion.unstage(push_folder, 2).stages == Stages(stable=1)
    promotion.set_canary(push_folder, 2, 10)
    assert promotion.stop(push_folder).stages == Stages(stable=1)
    assert promotion.unstage(push_folder, 1).stages == Stages()
    assert read_labels(files) == "model_config_list {\n}\n"
    assert promotion.rollback(push_folder).stages == Stages(stable=1)


def test_rollback_can_name_the_version(push_folder: PushFolder, files: Files) -> None:
    for number in (1, 2, 3):
        promotion.promote(push_folder, number)
    assert promotion.rollback(push_folder, to=1).stages == Stages(stable=1)
    assert promotion.rollback(push_folder, to=4).stages == Stages(stable=4)


REFUSED: dict[str, tuple[Callable[[PushFolder], State], str]] = {
    "a version that does not exist": (
        lambda push_folder: promotion.promote(push_folder, 9),
        "has no version 9; the newest is 4",
    ),
    "a canary of all": (lambda push_folder: promotion.set_canary(push_folder, 1, 10), "version 1, which is stable"),
    "no stage to give up": (lambda push_folder: promotion.unstage(push_folder, 2), "version 2 has no stage: stable 1"),
    "no canary to stop": (promotion.stop, "there is no canary to stop: stable 1"),
    "no earlier stable version": (promotion.rollback, "no earlier stable version exists"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_change_is_rejected_and_does_not_change_the_state(
    push_folder: PushFolder, files: Files, case: str
) -> None:
    promotion.promote(push_folder, 1)
    before = push_folder.state()
    act, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        act(push_folder)
    assert push_folder.state() == before


def test_canary_needs_a_stable_version(push_folder: PushFolder, files: Files) -> None:
    with pytest.raises(InputError, match="expected a stable version") as raised:
        promotion.set_canary(push_folder, 2, 10)
    assert "promote 2" in raised.value.remedy


@pytest.mark.parametrize(
    "act",
    [promotion.promote, lambda push_folder, number: promotion.set_canary(push_folder, number, 5), promotion.rollback],
)
def test_modified_version_cannot_get_a_stage(
    push_folder: PushFolder, files: Files, act: Callable[[PushFolder, int], State]
) -> None:
    promotion.promote(push_folder, 1)
    content = files.read("2/saved_model.pb")
    files.write("2/saved_model.pb", content[:77] + b"X" + content[78:])
    with pytest.raises(InputError, match=r"2/saved_model\.pb was changed after the push"):
        act(push_folder, 2)
    assert push_folder.state().stages == Stages(stable=1)


def test_settings_are_reused_unless_a_config_has_different_settings(push_folder: PushFolder, files: Files) -> None:
    promotion.promote(push_folder, 1)
    assert 'name: "taxi"' in read_labels(files)
    other_settings = RolloutConfig(model_name="trips", base_path="/models/trips")
    promotion.promote(PushFolder(push_folder.path, other_settings), 1)
    assert len(push_folder.state().history) == 1
    promotion.promote(push_folder, 2)
    assert 'name: "trips"' in read_labels(files)
    assert 'base_path: "/models/trips"' in read_labels(files)


def test_repeated_change_restores_the_rollout_files(push_folder: PushFolder, files: Files) -> None:
    promotion.promote(push_folder, 1)
    files.delete("rollout/models.config")
    promotion.promote(push_folder, 1)
    assert "value: 1" in read_labels(files)
    assert len(push_folder.state().history) == 1


def set_canaries(push_folder: PushFolder, percents: list[int]) -> None:
    for percent in percents:
        promotion.set_canary(push_folder, 2 + percent % 3, percent)


@pytest.mark.extended
def test_concurrent_changes_are_all_recorded(push_folder: PushFolder, files: Files) -> None:
    promotion.promote(push_folder, 1)
    # All percentages differ, because a change that does not change the stages is not recorded.
    share_lists = [list(range(start, start + 4)) for start in (1, 11, 21)]
    another = PushFolder(files.path, None)
    processes = [CONTEXT.Process(target=set_canaries, args=(another, share_list)) for share_list in share_lists]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        PushFolder(files.path, None).state()
    for process in processes:
        process.join()
    history = push_folder.state().history
    assert [process.exitcode for process in processes] == [0, 0, 0]
    shares = [line.after.canary.percent for line in history[1:] if line.after.canary]
    assert sorted(shares) == sorted(itertools.chain(*share_lists))
    assert all(earlier.after == later.before for earlier, later in itertools.pairwise(history))
    assert all([share for share in shares if share in share_list] == share_list for share_list in share_lists)
    last = history[-1].after.canary
    assert last is not None
    assert f'key: "canary" value: {last.version}' in read_labels(files)
    assert f"weight: {last.percent:g}\n" in files.read("rollout/virtual-service.yaml").decode()


def test_stages_are_rejected_at_other_urls() -> None:
    push_folder = PushFolder("hdfs://host/models", None)
    for act in (promotion.stop, promotion.rollback, lambda push_folder: promotion.promote(push_folder, 1)):
        with pytest.raises(
            InputError, match="expected a push folder on a file system or at gs://, s3:// or az://, received hdfs:"
        ):
            act(push_folder)


def test_version_is_found_by_number_or_stage(push_folder: PushFolder, files: Files) -> None:
    assert push_folder.resolve("3") == 3
    with pytest.raises(InputError, match="received no stable version"):
        push_folder.resolve("")
    promotion.promote(push_folder, 1)
    promotion.set_canary(push_folder, 2, 10)
    assert [push_folder.resolve(reference) for reference in ("", "stable", "canary")] == [1, 1, 2]
    with pytest.raises(InputError, match="expected a version, stable or canary, received newest"):
        push_folder.resolve("newest")
