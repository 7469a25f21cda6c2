"""Tests that loaded versions follow the folders and the config, and that failures do not affect served versions."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from google.protobuf import text_format
from grpc import StatusCode
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig

from components.serving.server.errors import RequestError
from components.serving.server.model_manager import (
    AVAILABLE,
    END,
    UNLOADING,
    ModelManager,
    load_verified,
)
from components.serving.server.saved_model import SavedModel
from tests.support.servers.serving import line


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    for number in (1, 2):
        line(base, number, manifest=True)
    return base


def not_served(message: str) -> pytest.RaisesExc[RequestError]:
    return pytest.raises(RequestError, match=message, check=lambda error: error.http_status == 404)


def config(base: Path, fields: str = "") -> ModelConfig:
    return text_format.Parse(f'name: "m" base_path: "{base}" {fields}', ModelConfig())


def label(number: int) -> str:
    return f'version_labels {{ key: "stable" value: {number} }}'


class Served:
    """A model manager with one model, whose config a test can change."""

    def __init__(self, base: Path, exported: Path, allow_unverified: bool) -> None:
        self.base, self.exported = base, exported
        self.configs = {"m": config(base)}
        self.broken = False
        self.unloaded: list[int] = []
        self.manager = ModelManager(self._read, functools.partial(load_verified, None, allow_unverified, 1))
        self.manager.on_unload = lambda version: self.unloaded.append(version.number)

    def _read(self) -> dict[str, ModelConfig]:
        if self.broken:
            raise RequestError("the file is broken")
        return self.configs

    def put(self, number: int) -> Path:
        return Path(shutil.copytree(self.exported / str(number), self.base / str(number)))

    def states(self) -> dict[int, int]:
        return {version.number: version.state for version in self.manager.status("m")}

    async def update(self) -> dict[int, int]:
        await self.manager.update()
        return self.states()


Try = Callable[[Callable[[Served], Awaitable[None]]], None]


@pytest.fixture(params=[False])
def run(request: pytest.FixtureRequest, tmp_path: Path, exported: Path) -> Try:
    """Return a function that runs the steps of a test in an event loop, and then unloads all models."""

    def run(steps: Callable[[Served], Awaitable[None]]) -> None:
        async def main() -> None:
            served = Served(tmp_path / "m", exported, request.param)
            try:
                await steps(served)
            finally:
                served.configs = {}
                await served.manager.update()

        asyncio.run(main())

    (tmp_path / "m").mkdir()
    return run


def test_new_version_is_loaded_before_the_old_version_is_unloaded(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        assert await served.update() == {1: AVAILABLE}
        served.put(2)
        assert await served.update() == {2: AVAILABLE, 1: END}
        assert served.unloaded == [1]
        shutil.rmtree(served.base / "2")
        assert await served.update() == {1: AVAILABLE}
        assert served.unloaded == [1, 2]

    run(steps)


def test_version_in_use_is_unloaded_after_its_last_request(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.update()
        first = served.manager.find("m")
        served.put(2)
        with first as saved_model:
            looking = asyncio.ensure_future(served.update())
            while first.state != UNLOADING:
                await asyncio.sleep(0)
            assert served.manager.find("m").number == 2
            with not_served("version 1 is not loaded"), first:
                pass
            assert saved_model.signature("pairs").run({"pairs": [[1, 2]]})["sum"].tolist() == [3]
        assert await looking == {2: AVAILABLE, 1: END}

    run(steps)


@pytest.mark.parametrize("damage", ["a byte", "no graph", "another manifest"])
def test_damaged_version_is_not_loaded_and_the_old_version_keeps_serving(run: Try, damage: str) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.update()
        folder = served.put(2)
        if damage == "a byte":
            data = next(folder.glob("variables/*.data-*"))
            content = bytearray(data.read_bytes())
            content[len(content) // 2] ^= 1
            data.write_bytes(content)
        elif damage == "no graph":
            (folder / "saved_model.pb").write_bytes(b"\xff")
            (folder / "manifest.json").unlink()
        else:
            shutil.copy(served.base / "1" / "manifest.json", folder)
        assert await served.update() == {2: END, 1: AVAILABLE}
        assert served.manager.status("m", 2)[0].error
        assert served.manager.find("m").number == 1
        tried = served.manager.status("m", 2)[0]
        await served.update()
        assert served.manager.status("m", 2) == [tried], "it was tried again, though nothing has changed"
        # It is loaded once it is repaired, even in place and with the original modification times.
        shutil.copytree(served.exported / "2", folder, dirs_exist_ok=True)
        assert await served.update() == {2: AVAILABLE, 1: END}

    run(steps)


def test_version_whose_manifest_was_removed_is_not_loaded(run: Try) -> None:
    async def steps(served: Served) -> None:
        (served.put(1) / "manifest.json").unlink()
        assert await served.update() == {1: END}
        assert "expected a manifest.json, found none" in served.manager.status("m")[0].error

    run(steps)


@pytest.mark.parametrize("run", [True], indirect=True)
def test_allow_unverified_loads_versions_without_a_manifest_and_still_verifies_manifests(run: Try) -> None:
    async def steps(served: Served) -> None:
        (served.put(1) / "manifest.json").unlink()
        (served.put(2) / "saved_model.pb").write_bytes(b"\xff")
        served.configs = {"m": config(served.base, "model_version_policy { all { } }")}
        assert await served.update() == {1: AVAILABLE, 2: END}
        assert "its content differs" in served.manager.status("m", 2)[0].error

    run(steps)


def test_label_moves_when_its_version_is_loaded(run: Try) -> None:
    async def steps(served: Served) -> None:
        def configure(number: int) -> None:
            policy = f"model_version_policy {{ specific {{ versions: {number} }} }}"
            served.configs = {"m": config(served.base, f"{policy} {label(number)}")}

        served.put(1)
        configure(1)
        await served.update()
        configure(2)
        (served.base / "2").mkdir()
        (served.base / "2" / "saved_model.pb").write_bytes(b"\xff")
        assert await served.update() == {2: END, 1: AVAILABLE}
        assert served.manager.find("m", label="stable").number == 1
        shutil.rmtree(served.base / "2")
        served.put(2)
        assert await served.update() == {2: AVAILABLE, 1: END}
        assert served.manager.find("m", label="stable").number == 2

    run(steps)


def test_broken_config_does_not_change_the_loaded_versions(run: Try, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.update()
        served.broken = True
        watching = asyncio.ensure_future(served.manager.watch(0.01))
        while "the file is broken" not in caplog.text:
            await asyncio.sleep(0)
        assert served.states() == {1: AVAILABLE}
        # The watcher continues to update after the error.
        served.broken = False
        served.put(2)
        while served.states().get(2) != AVAILABLE:
            await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(steps)
    assert caplog.text.count("the models cannot be updated") == 1


def test_models_can_be_added_and_removed(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        served.configs = {"m": config(served.base), "n": config(served.base, label(1))}
        await served.update()
        assert served.manager.find("n", label="stable").number == 1
        served.configs = {"m": config(served.base)}
        await served.update()
        with not_served(r"expected a model of \['m'\], received 'n'"):
            served.manager.find("n")
        assert [(version.model, version.number) for version in served.manager.all()] == [("m", 1)]
        served.configs = {}
        await served.manager.update()
        assert served.manager.all() == []

    run(steps)


def test_unknown_model_or_version_is_not_found_and_a_label_is_not_valid(run: Try) -> None:
    async def steps(served: Served) -> None:
        with not_served(r"expected a model of .*, received 'm'"):
            served.manager.find("m")
        await served.manager.update()
        with not_served("no version is loaded"):
            served.manager.find("m")
        served.put(1)
        await served.update()
        for look_up in (served.manager.find, served.manager.status):
            with not_served("version 7"):
                look_up("m", 7)
        with pytest.raises(RequestError, match=r"expected a label of \[\], received 'stable'") as caught:
            served.manager.find("m", label="stable")
        assert caught.value.code is StatusCode.INVALID_ARGUMENT

    run(steps)


def test_label_is_not_found_while_the_first_version_is_loading(exported: Path) -> None:
    errors: list[RequestError] = []

    def load(folder: Path) -> SavedModel:
        with not_served(r"expected a label of \[\], received 'stable'|version 2 is not loaded") as caught:
            manager.find("m", label="stable")
        errors.append(caught.value)
        return SavedModel(folder, 1)

    manager = ModelManager(lambda: {"m": config(exported, label(2))}, load)
    asyncio.run(manager.update())
    assert len(errors) == 1
    assert manager.find("m", label="stable").number == 2
