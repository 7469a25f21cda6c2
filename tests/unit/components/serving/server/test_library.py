"""What is loaded follows the folders and the config; what cannot be loaded changes nothing for what is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from serving import line

from components.serving.server.library import AVAILABLE, END, UNLOADING, Library, Version
from components.serving.server.refusal import RequestError, invalid
from components.serving.server.sources import Source


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    for number in (1, 2):
        line(base, number, manifest=True)
    return base


class Served:
    """A library of one model, whose wants a test changes."""

    def __init__(self, base: Path, made: Path, key: bytes | None) -> None:
        self.base, self.made = base, made
        self.sources: dict[str, Source] = {"m": Source(base)}
        self.broken = False
        self.gone: list[int] = []
        self.library = Library(self._read, 0.01, key, 1)
        self.library.forget = lambda version: self.gone.append(version.number)

    def _read(self) -> dict[str, Source]:
        if self.broken:
            raise invalid("the file is broken")
        return self.sources

    def put(self, number: int) -> Path:
        return Path(shutil.copytree(self.made / str(number), self.base / str(number)))

    def states(self) -> dict[int, int]:
        return {version.number: version.state for version in self.library.status("m")}

    async def look(self) -> dict[int, int]:
        await self.library.look()
        return self.states()


Try = Callable[[Callable[[Served], Awaitable[None]]], None]


@pytest.fixture(params=[None])
def run(request: pytest.FixtureRequest, tmp_path: Path, made: Path) -> Try:
    """Runs a test's steps on a loop, and closes the library after them."""

    def run(steps: Callable[[Served], Awaitable[None]]) -> None:
        async def main() -> None:
            served = Served(tmp_path / "m", made, request.param)
            try:
                await steps(served)
            finally:
                await served.library.close()

        asyncio.run(main())

    (tmp_path / "m").mkdir()
    return run


def test_a_new_version_comes_before_the_old_one_goes(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        assert await served.look() == {1: AVAILABLE}
        served.put(2)
        assert await served.look() == {2: AVAILABLE, 1: END}
        assert served.gone == [1]
        shutil.rmtree(served.base / "2")
        assert await served.look() == {1: AVAILABLE}
        assert served.gone == [1, 2]

    run(steps)


def test_a_version_in_use_stays_until_its_last_request_is_answered(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.look()
        first = served.library.find("m")
        served.put(2)
        with first as servable:
            looking = asyncio.ensure_future(served.look())
            while first.state != UNLOADING:
                await asyncio.sleep(0)
            assert served.library.find("m").number == 2
            with pytest.raises(RequestError, match="version 1: it is not loaded"), first:
                pass
            assert servable.signature("pairs").run({"pairs": [[1, 2]]})["sum"].tolist() == [3]
        assert await looking == {2: AVAILABLE, 1: END}

    run(steps)


@pytest.mark.parametrize("damage", ["a byte", "no graph", "another manifest"])
def test_a_damaged_version_is_not_loaded_and_the_old_one_serves_on(run: Try, damage: str) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.look()
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
        assert await served.look() == {2: END, 1: AVAILABLE}
        assert served.library.status("m", 2)[0].error
        assert served.library.find("m").number == 1
        tried = served.library.status("m", 2)[0]
        await served.look()
        assert served.library.status("m", 2) == [tried], "it was tried again, though nothing has changed"
        # Put right in place, with the times that its files had, it is loaded.
        shutil.copytree(served.made / "2", folder, dirs_exist_ok=True)
        assert await served.look() == {2: AVAILABLE, 1: END}

    run(steps)


@pytest.mark.parametrize("run", [b"secret"], indirect=True)
def test_with_a_key_what_is_not_signed_is_not_loaded(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        (served.put(2) / "manifest.json").unlink()
        served.sources = {"m": Source(served.base, newest=None)}
        assert await served.look() == {1: END, 2: END}
        errors = [version.error for version in served.library.status("m")]
        assert "expected a manifest.json, found none" in errors[0]
        assert "expected a signature, found none" in errors[1]

    run(steps)


def test_a_label_waits_for_its_version(run: Try) -> None:
    async def steps(served: Served) -> None:
        def want(number: int) -> None:
            served.sources = {"m": Source(served.base, versions=frozenset([number]), labels={"stable": number})}

        served.put(1)
        want(1)
        await served.look()
        want(2)
        (served.base / "2").mkdir()
        (served.base / "2" / "saved_model.pb").write_bytes(b"\xff")
        assert await served.look() == {2: END, 1: AVAILABLE}
        assert served.library.find("m", label="stable").number == 1
        shutil.rmtree(served.base / "2")
        served.put(2)
        assert await served.look() == {2: AVAILABLE, 1: END}
        assert served.library.find("m", label="stable").number == 2

    run(steps)


def test_a_broken_config_changes_nothing(run: Try, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        await served.look()
        served.broken = True
        watching = asyncio.ensure_future(served.library.watch())
        while "the file is broken" not in caplog.text:
            await asyncio.sleep(0)
        assert served.states() == {1: AVAILABLE}
        # It goes on looking.
        served.broken = False
        served.put(2)
        while served.states().get(2) != AVAILABLE:
            await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(steps)
    assert caplog.text.count("the models cannot be looked after") == 1


def test_models_come_and_go(run: Try) -> None:
    async def steps(served: Served) -> None:
        served.put(1)
        served.sources = {"m": Source(served.base), "n": Source(served.base, labels={"stable": 1})}
        await served.look()
        assert served.library.find("n", label="stable").number == 1
        served.sources = {"m": Source(served.base)}
        await served.look()
        with pytest.raises(RequestError, match=r"'n' is not served here; known are \['m'\]"):
            served.library.find("n")
        assert [(version.model, version.number) for version in served.library.all()] == [("m", 1)]
        served.library.replace_sources({})
        await served.library.look()
        assert served.library.all() == []

    run(steps)


def test_what_is_not_there_is_told(run: Try) -> None:
    async def steps(served: Served) -> None:
        with pytest.raises(RequestError, match="'m' is not served here"):
            served.library.find("m")
        await served.library.look()
        with pytest.raises(RequestError, match="no version that is loaded"):
            served.library.find("m")
        served.put(1)
        await served.look()
        for ask in (served.library.find, served.library.status):
            with pytest.raises(RequestError, match="version 7") as caught:
                ask("m", 7)
            assert caught.value.http == 404
            with pytest.raises(RequestError, match="no label 'stable'; known are"):
                ask("m", label="stable")

    run(steps)


def test_labels_are_looked_up_while_the_first_version_loads(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RequestError] = []

    def load(version: Version, key: bytes | None, threads: int) -> None:
        with pytest.raises(RequestError) as caught:
            library.find("m", label="stable")
        asked.append(caught.value)

    async def main() -> None:
        await library.look()
        await library.close()

    monkeypatch.setattr(Version, "load", load)
    library = Library(lambda: {"m": Source(made, labels={"stable": 2})}, 1, None, 1)
    asyncio.run(main())
    assert [error.http for error in asked] == [404]
