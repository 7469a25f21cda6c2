"""Tests that all kinds of push folders handle state, files, versions and removals in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import InputError
from components.pusher.config import RolloutConfig
from components.pusher.open_store import open_store
from components.pusher.serving_state import Canary, Stages, State
from components.pusher.store import Store, find_removable
from components.results import version_manifest
from pipeline.registry import promotion
from pipeline.registry.versions import PushFolder
from tests.support.runs.push_folders import KINDS, REAL, Files, push_folder


@pytest.fixture(params=[*KINDS, *REAL])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    with push_folder(request.param, tmp_path) as files:
        yield files


@pytest.fixture
def store(files: Files) -> Store:
    return open_store(files.path)


def promote_version(now: State, version: int) -> State:
    return now.change_stages("promote", Stages(stable=version), "me")


def test_empty_folder_has_an_empty_state_and_no_versions(store: Store) -> None:
    assert (store.has_stages, store.read(), store.versions(), store.leftovers()) == (True, State(), [], [])


def test_change_is_stored_and_writes_the_files(store: Store, files: Files) -> None:
    files.push(1)
    files.push(2)
    store.change(lambda now: promote_version(now, 1))
    new = store.change(lambda now: promote_version(now, 2))
    assert store.read() == new
    assert len(new.history) == 2
    assert json.loads(files.read("registry.json"))["stable"] == 2
    out = {name.removeprefix("rollout/") for name in files.names() if name.startswith("rollout/")}
    assert out == {
        "models.config",
        "models-stable.config",
        "models-canary.config",
        "haproxy.cfg",
        "virtual-service.yaml",
        "inference-service.yaml",
        "versions/1.config",
        "versions/2.config",
    }
    config = files.read("rollout/models.config").decode()
    assert f'name: "{files.path.rpartition("/")[2]}"' in config
    assert f'base_path: "{files.path}"' in config
    assert "versions: 1 versions: 2" in config


def test_file_of_a_version_that_no_longer_serves_is_removed(store: Store, files: Files) -> None:
    for version in (1, 2, 3):
        files.push(version)
        store.change(lambda now, version=version: promote_version(now, version))
    versions = {name for name in files.names() if name.startswith("rollout/versions/")}
    assert versions == {"rollout/versions/2.config", "rollout/versions/3.config"}


def test_rejected_change_does_not_modify_the_folder(store: Store, files: Files) -> None:
    files.push(1)
    store.change(lambda now: promote_version(now, 1))
    before = {name: files.read(name) for name in files.names()}

    def refuse(now: State) -> State:
        raise InputError("no", "do not")

    with pytest.raises(InputError, match="no"):
        store.change(refuse)
    assert {name: files.read(name) for name in files.names()} == before


def test_damaged_state_is_an_error_and_is_not_overwritten(store: Store, files: Files) -> None:
    files.write("registry.json", b'{"stable": ')
    for act in (store.read, lambda: store.change(lambda now: now)):
        with pytest.raises(InputError, match=r"/registry\.json is damaged") as raised:
            act()
        assert "restore a copy" in raised.value.remedy
    assert files.read("registry.json") == b'{"stable": '


def test_version_is_verified_file_by_file(store: Store, files: Files) -> None:
    files.push(7)
    version = store.version(7)
    assert (version.name, str(version)) == ("7", f"{files.path}/7")
    assert version_manifest.verify(version).version == 7
    files.write("7/variables/added", b"x")
    with pytest.raises(InputError, match="7/variables/added is not in the manifest"):
        version_manifest.verify(version)
    files.delete("7/variables/added")
    files.delete("7/variables/variables.index")
    with pytest.raises(InputError, match=r"7/variables/variables\.index is missing"):
        version_manifest.verify(version)
    with pytest.raises(InputError, match=r"expected a manifest\.json, found none"):
        version_manifest.read(store.version(8))


def test_oldest_versions_are_removable_unless_they_serve(store: Store, files: Files) -> None:
    for version in range(1, 8):
        files.push(version)
    now = promote_version(promote_version(State(), 1), 3)
    now = now.change_stages("canary", Stages(stable=3, canary=Canary(version=2, percent=5)), "me")
    assert find_removable(store, now, 3) == (4,)
    assert find_removable(store, State(), 2) == (1, 2, 3, 4, 5)
    assert find_removable(store, State(), 9) == ()
    # A killed push left these removals. Version 9 does not exist any more.
    assert find_removable(store, State(removing=(6, 9)), 2) == (1, 2, 3, 4, 5, 6)


def test_removed_version_does_not_exist_any_more(store: Store, files: Files) -> None:
    files.push(1)
    files.push(11)
    store.remove(1)
    store.remove(1)
    assert store.versions() == [11]
    assert all(name.startswith("11/") for name in files.names())


def test_version_that_is_being_removed_cannot_be_staged(store: Store, files: Files) -> None:
    for version in (1, 2, 3):
        files.push(version)
        store.change(lambda now, version=version: promote_version(now, version))
    store.change(lambda now: now.model_copy(update={"removing": (2,)}))
    for act in (promotion.promote, lambda folder, number: promotion.set_canary(folder, number, 5)):
        with pytest.raises(InputError, match=r"version 2 is being removed: push\.keep"):
            act(PushFolder(files.path, None), 2)
    # A rollback skips version 2, and the model config does not list it.
    assert "versions: 1 versions: 3" in files.read("rollout/models.config").decode()
    assert promotion.rollback(PushFolder(files.path, None)).stable == 1


def test_base_path_of_the_servers_can_be_configured(store: Store, files: Files) -> None:
    files.push(1)
    settings = RolloutConfig(model_name="trips", base_path="/models/trips")
    store.change(lambda now: promote_version(now, 1).model_copy(update={"rollout": settings}))
    assert 'base_path: "/models/trips"' in files.read("rollout/models.config").decode()
