"""Keeps the loaded versions in step with the models' folders: new versions are loaded before old ones are unloaded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from grpc import StatusCode
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from components import version_manifest as manifests
from components.errors import InputError, PipelineError
from components.serving.server.errors import RequestError
from components.serving.server.saved_model import SavedModel

START, LOADING = ModelVersionStatus.START, ModelVersionStatus.LOADING
AVAILABLE, UNLOADING, END = ModelVersionStatus.AVAILABLE, ModelVersionStatus.UNLOADING, ModelVersionStatus.END


@dataclass(frozen=True)
class ModelSource:
    """The folder of a model. Its subfolders whose names are numbers are the versions.

    Attributes:
      folder: the base path.
      newest: how many of the greatest versions to load; None for all.
      versions: if not empty, exactly these versions are loaded.
      labels: label → version number.
    """

    folder: Path
    newest: int | None = 1
    versions: frozenset[int] = frozenset()
    labels: Mapping[str, int] = field(default_factory=dict)

    def version_folders(self) -> dict[int, Path]:
        """Return the folders of the versions to load that exist, by version number in ascending order."""
        entries = self.folder.iterdir() if self.folder.is_dir() else ()
        found = [(int(each.name), each) for each in entries if manifests.is_version(each.name)]
        found = sorted(each for each in found if (each[1] / "saved_model.pb").is_file())
        if self.versions:
            return {number: folder for number, folder in found if number in self.versions}
        return dict(found if self.newest is None else found[-self.newest :])


def read_sources(file: Path) -> dict[str, ModelSource]:
    """Read a model config file, a ModelServerConfig as a text proto.

    Returns:
      Model name → source.

    Raises:
      RequestError: the file cannot be read or is not valid.
    """
    try:
        return to_sources(text_format.Parse(file.read_text(), ModelServerConfig()))
    except (text_format.ParseError, OSError, ValueError) as error:
        raise RequestError(f"{file}: expected a ModelServerConfig as a text proto: {error}") from error


def to_sources(config: Any, root: Path | None = None) -> dict[str, ModelSource]:
    """Convert a ModelServerConfig message.

    Args:
      config: the message.
      root: if given, every base_path must be inside this folder after symbolic links are resolved.

    Returns:
      Model name → source.

    Raises:
      RequestError: a name or base_path is missing, duplicate or outside of the root; or a policy is empty.
    """
    result: dict[str, ModelSource] = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path or model.name in result:
            raise RequestError(f"model config: expected a unique name and a base_path, received {model.name!r}")
        folder = Path(model.base_path)
        if root is not None and not folder.resolve().is_relative_to(root.resolve()):
            raise RequestError(f"model config: expected a base_path inside {root}, received {model.base_path!r}")
        policy = model.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        if kind == "specific" and not policy.specific.versions:
            raise RequestError(f"model config: expected the specific versions of {model.name!r}, received none")
        newest = None if kind == "all" else (policy.latest.num_versions or 1)
        result[model.name] = ModelSource(
            folder, newest, frozenset(policy.specific.versions), dict(model.version_labels)
        )
    return result


@dataclass(frozen=True)
class LoadOptions:
    """How versions are loaded.

    Attributes:
      signing_key: the key that manifests must be signed with; None to ignore signatures.
      allow_unverified: whether to load a version without a manifest.
      intra_op_threads: threads of one op.
    """

    signing_key: bytes | None = None
    allow_unverified: bool = False
    intra_op_threads: int = 1


@dataclass(eq=False)
class Version:
    """One version of a model. As a context manager it stays loaded until the end of the block.

    Attributes:
      model: name of the model.
      number: the version.
      folder: its SavedModel.
      state: a state of TensorFlow Serving's ModelVersionStatus.
      error: why it could not be loaded.
      saved_model: set while it is loaded.
    """

    model: str
    number: int
    folder: Path
    state: int = START
    error: str = ""
    saved_model: SavedModel | None = None
    _changed: tuple[int, ...] = ()
    _users: int = 0
    _unused: asyncio.Event | None = None

    def __enter__(self) -> SavedModel:
        if self.saved_model is None:
            raise _not_loaded(self.model, self.number)
        self._users += 1
        return self.saved_model

    def __exit__(self, *_error: object) -> None:
        self._users -= 1
        if not self._users and self._unused is not None:
            self._unused.set()

    def load(self, options: LoadOptions) -> None:
        """Verify and load the version; a failure is stored in `error` and logged."""
        self.state, self._changed = LOADING, self._change_times()
        try:
            if (self.folder / manifests.NAME).exists():
                manifests.verify(self.folder, options.signing_key)
            elif not options.allow_unverified:
                headline = f"{self.folder}: expected a {manifests.NAME}, found none"
                raise InputError(headline, "push the model again, or start the server with --allow_unverified")
            self.saved_model = SavedModel(self.folder, options.intra_op_threads)
            self.state = AVAILABLE
            text = f"loaded, {self.saved_model.warm_up_requests} warm-up requests"
            logging.info("model %s: version %d is %s", self.model, self.number, text)
        except Exception as error:
            self.state, self.error = END, f"{type(error).__name__}: {error}"[:500]
            remedy = "push another version"
            if isinstance(error, PipelineError):
                self.error, remedy = error.headline, error.remedy
            logging.error("model %s: version %d is not loaded: %s; %s", self.model, self.number, self.error, remedy)

    def should_load(self) -> bool:
        """Return whether it was unloaded, or its files changed since it failed to load."""
        return self.state == END and not (self.error and self._changed == self._change_times())

    async def unload(self) -> None:
        """Accept no new requests, and free the memory after the last one."""
        self.state, saved_model, self.saved_model = UNLOADING, self.saved_model, None
        if self._users:
            self._unused = asyncio.Event()
            await self._unused.wait()
        if saved_model is not None:
            saved_model.close()
        self.state = END
        logging.info("model %s: version %d is unloaded", self.model, self.number)

    def _change_times(self) -> tuple[int, ...]:
        # A copy can have the modification times of the original, but not its inode change times.
        with contextlib.suppress(OSError):
            return tuple(path.stat().st_ctime_ns for path in sorted(self.folder.rglob("*")))
        return ()


class ModelManager:
    """All versions of all models.

    Args:
      read: returns model name → source. If it raises, nothing changes.
      options: how versions are loaded.

    Attributes:
      on_unload: called with each version that was unloaded.
    """

    def __init__(self, read: Callable[[], Mapping[str, ModelSource]], options: LoadOptions) -> None:
        self._read_sources, self._options = read, options
        self.on_unload: Callable[[Version], None] = lambda version: None
        self._versions: dict[str, dict[int, Version]] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._updating = asyncio.Lock()
        # Loading does not use the threads that run models.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")

    async def watch(self, poll_seconds: float) -> None:
        """Update until cancelled."""
        last = ""
        while True:
            try:
                await self.update()
                last = ""
            except Exception as error:
                if str(error) != last:
                    logging.exception("the models cannot be updated; loaded versions stay loaded")
                last = str(error)
            await asyncio.sleep(poll_seconds)

    async def replace_sources(self, sources: Mapping[str, ModelSource]) -> None:
        """Serve these models from now on, whatever options or files say."""
        self._read_sources = lambda: sources
        await self.update()

    async def update(self) -> None:
        """Load the versions that should be loaded, then unload the others."""
        async with self._updating:
            run = asyncio.get_running_loop().run_in_executor
            sources = await run(self._thread, self._read_sources)
            for name, source in sources.items():
                folders = await run(self._thread, source.version_folders)
                versions = self._versions.setdefault(name, {})
                for number, folder in folders.items():
                    if number not in versions or versions[number].should_load():
                        versions[number] = Version(name, number, folder)
                        await run(self._thread, versions[number].load, self._options)
                # A label keeps its version loaded until the label's new version is loaded.
                loaded, labels = _loaded(versions), self._labels.get(name, {})
                self._labels[name] = labels = {
                    label: number if number in loaded else labels.get(label, number)
                    for label, number in source.labels.items()
                }
                if not folders or not loaded.isdisjoint(folders):
                    await self._unload(versions, versions.keys() - folders.keys() - set(labels.values()))
            for name in self._versions.keys() - sources.keys():
                await self._unload(self._versions[name], set(self._versions[name]))
                del self._versions[name]
                self._labels.pop(name, None)

    async def _unload(self, versions: dict[int, Version], numbers: set[int]) -> None:
        for version in map(versions.__getitem__, numbers):
            if version.state == AVAILABLE:
                await version.unload()
                self.on_unload(version)
            if not version.folder.exists():
                del versions[version.number]

    def find(self, model: str, number: int | None = None, label: str | None = None) -> Version:
        """Return the loaded version with this number or label; without both, the greatest loaded version.

        Raises:
          RequestError: there is none.
        """
        versions, labels = self._versions.get(model), self._labels.get(model, {})
        if versions is None:
            raise _not_found(f"expected a model of {sorted(self._versions)}, received {model!r}")
        if label and label not in labels:
            raise _not_found(f"model {model!r}: expected a label of {sorted(labels)}, received {label!r}")
        loaded = _loaded(versions)
        number = labels[label] if label else max(loaded, default=None) if number is None else number
        if number is None or number not in loaded:
            raise _not_loaded(model, number)
        return versions[number]

    def status(self, model: str, number: int | None = None, label: str | None = None) -> list[Version]:
        """Return the versions of a model in descending order, or the one with this number or label.

        Raises:
          RequestError: there is none.
        """
        if label:
            return [self.find(model, label=label)]
        versions = self._versions.get(model, {})
        matches = [versions[each] for each in sorted(versions, reverse=True) if number in (None, each)]
        if not matches:
            suffix = "" if number is None else f", version {number}"
            raise _not_found(f"expected a model of {sorted(self._versions)}, received {model!r}{suffix}")
        return matches

    def all(self) -> list[Version]:
        """Return every version of every model."""
        return [version for versions in self._versions.values() for version in versions.values()]

    async def close(self) -> None:
        """Unload everything."""
        async with self._updating:
            for versions in self._versions.values():
                await self._unload(versions, set(versions))
        self._thread.shutdown()


def _loaded(versions: Mapping[int, Version]) -> set[int]:
    return {number for number, version in versions.items() if version.state == AVAILABLE}


def _not_found(message: str) -> RequestError:
    return RequestError(message, StatusCode.NOT_FOUND)


def _not_loaded(model: str, number: int | None) -> RequestError:
    what = "no version is loaded" if number is None else f"version {number} is not loaded"
    return _not_found(f"model {model!r}: {what}")
