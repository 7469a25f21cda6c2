"""The versions that are loaded, kept in step with the folders: new ones come in first, then old ones go."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus

from components import version as pushed
from components.errors import PipelineError
from components.serving.server.refusal import not_found
from components.serving.server.servable import Servable
from components.serving.server.sources import Source

START, LOADING = ModelVersionStatus.START, ModelVersionStatus.LOADING
AVAILABLE, UNLOADING, END = ModelVersionStatus.AVAILABLE, ModelVersionStatus.UNLOADING, ModelVersionStatus.END


@dataclass(eq=False)
class Version:
    """One version, from the moment it is wanted.

    Attributes:
      model: the model's name.
      number: the version.
      folder: where it is.
      state: TensorFlow Serving's.
      error: why it is not loaded.
      servable: while it is loaded.
    """

    model: str
    number: int
    folder: Path
    state: int = START
    error: str = ""
    servable: Servable | None = None
    _content: tuple[int, ...] = ()
    _users: int = 0
    _unused: asyncio.Event | None = None

    def __enter__(self) -> Servable:
        """Keeps it loaded until the end of the block.

        Raises:
          RequestError: it is not loaded.
        """
        if self.servable is None:
            raise not_found(f"model {self.model!r}, version {self.number}: it is not loaded")
        self._users += 1
        return self.servable

    def __exit__(self, *_error: object) -> None:
        self._users -= 1
        if not self._users and self._unused is not None:
            self._unused.set()

    def load(self, key: bytes | None, intra_op_threads: int) -> None:
        """Checks it against its manifest, and loads it; what goes wrong is kept."""
        self.state, self.error, self._content = LOADING, "", self._stamp()
        try:
            if key is not None or (self.folder / pushed.NAME).exists():
                pushed.verify(self.folder, key)
            self.servable = Servable(self.folder, intra_op_threads)
            self.state = AVAILABLE
        except PipelineError as error:
            self.state, self.error = END, error.headline
        except Exception as error:
            self.state, self.error = END, f"{type(error).__name__}: {error}"[:500]

    def failed_as_it_is(self) -> bool:
        """Whether it could not be loaded, and nothing has changed since."""
        return self.state == END and bool(self.error) and self._content == self._stamp()

    async def unload(self) -> None:
        """Takes no new requests, and frees the memory after the last one."""
        self.state = UNLOADING
        servable, self.servable = self.servable, None
        if self._users:
            self._unused = asyncio.Event()
            await self._unused.wait()
        if servable is not None:
            servable.close()
        self.state = END

    def _stamp(self) -> tuple[int, ...]:
        # A copy that was put back may have the old times of its content, but never those of its inodes.
        with contextlib.suppress(OSError):
            return tuple(path.stat().st_ctime_ns for path in sorted(self.folder.rglob("*")))
        return ()


class Library:
    """All versions of all models.

    Args:
      read_sources: tells what is wanted, as often as it is asked; it may raise, and then nothing changes.
      poll_seconds: between two looks.
      key: what manifests are signed with, if they are.
      intra_op_threads: threads of one op.

    Attributes:
      forget: told a version that is gone.
    """

    def __init__(
        self,
        read_sources: Callable[[], Mapping[str, Source]],
        poll_seconds: float,
        key: bytes | None,
        intra_op_threads: int,
    ) -> None:
        self._read_sources, self._poll_seconds, self._key = read_sources, poll_seconds, key
        self._intra_op_threads = intra_op_threads
        self.forget: Callable[[Version], None] = lambda version: None
        self._versions: dict[str, dict[int, Version]] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._looking = asyncio.Lock()
        self._told = ""
        # One at a time, in a thread of their own: loading must not take the threads that answer.
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="load")

    async def watch(self) -> None:
        """Looks again and again, until it is cancelled."""
        while True:
            try:
                await self.look()
                self._told = ""
            except Exception as error:
                if str(error) != self._told:
                    logging.exception("the models cannot be looked after; what is loaded stays")
                self._told = str(error)
            await asyncio.sleep(self._poll_seconds)

    def replace_sources(self, sources: Mapping[str, Source]) -> None:
        """Wants these from now on, whatever flags or files said."""
        self._read_sources = lambda: sources

    async def look(self) -> None:
        """Looks once: loads what is wanted and not there, then lets go of what is no longer wanted."""
        async with self._looking:
            loop = asyncio.get_running_loop()
            sources = await loop.run_in_executor(self._loader, self._read_sources)
            for name, source in sources.items():
                wanted = await loop.run_in_executor(self._loader, source.wanted)
                have = self._versions.setdefault(name, {})
                for number, folder in wanted.items():
                    known = have.get(number)
                    if known is None or (known.state == END and not known.failed_as_it_is()):
                        have[number] = version = Version(name, number, folder)
                        await loop.run_in_executor(self._loader, version.load, self._key, self._intra_op_threads)
                        _tell(version)
                # A label moves when what it is to point at is there; until then it stays, and so does its version.
                before, loaded = self._labels.get(name, {}), _loaded(have)
                labels = {
                    label: number if number in loaded else before.get(label, number)
                    for label, number in source.labels.items()
                }
                self._labels[name] = labels
                if not loaded.isdisjoint(wanted) or not wanted:
                    await self._unload(have, have.keys() - wanted.keys() - set(labels.values()))
            for name in self._versions.keys() - sources.keys():
                await self._unload(self._versions[name], set(self._versions[name]))
                del self._versions[name]
                self._labels.pop(name, None)

    async def _unload(self, have: dict[int, Version], numbers: set[int]) -> None:
        for number in numbers:
            version = have[number]
            if version.state == AVAILABLE:
                await version.unload()
                self.forget(version)
                logging.info("model %s: version %d is unloaded", version.model, number)
            if not version.folder.exists():
                del have[number]

    def find(self, model: str, number: int | None = None, label: str | None = None) -> Version:
        """The version that a request asks for; the greatest one if it does not say.

        Raises:
          RequestError: there is no such model, version or label, or the version is not loaded.
        """
        have = self._versions.get(model)
        if have is None:
            raise not_found(f"model {model!r} is not served here; known are {sorted(self._versions)}")
        if label:
            labels = self._labels.get(model, {})
            if label not in labels:
                raise not_found(f"model {model!r} has no label {label!r}; known are {sorted(labels)}")
            number = labels[label]
        if number is None:
            loaded = _loaded(have)
            if not loaded:
                raise not_found(f"model {model!r} has no version that is loaded")
            number = max(loaded)
        version = have.get(number)
        if version is None or version.state != AVAILABLE:
            raise not_found(f"model {model!r}, version {number}: it is not loaded")
        return version

    def status(self, model: str, number: int | None = None, label: str | None = None) -> list[Version]:
        """The versions of a model and their states, the greatest first.

        Raises:
          RequestError: there is no such model, version or label.
        """
        if label:
            return [self.find(model, label=label)]
        have = self._versions.get(model, {})
        found = [have[each] for each in sorted(have, reverse=True) if number in (None, each)]
        if not found:
            raise not_found(f"model {model!r}{f', version {number}' if number is not None else ''} is not served here")
        return found

    def all(self) -> list[Version]:
        """Every version of every model."""
        return [version for have in self._versions.values() for version in have.values()]

    async def close(self) -> None:
        """Lets go of everything."""
        async with self._looking:
            for have in self._versions.values():
                await self._unload(have, set(have))
        self._loader.shutdown()


def _loaded(versions: Mapping[int, Version]) -> set[int]:
    return {number for number, version in versions.items() if version.state == AVAILABLE}


def _tell(version: Version) -> None:
    if version.servable is None:
        logging.error("model %s: version %d is not loaded: %s", version.model, version.number, version.error)
    else:
        logging.info(
            "model %s: version %d is loaded, %d requests to warm up",
            version.model,
            version.number,
            version.servable.warmed,
        )
