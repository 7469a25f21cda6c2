"""Load the versions that appear in the models' folders, and then unload the versions that they replace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from grpc import StatusCode
from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus
from tensorflow_serving.config.model_server_config_pb2 import ModelConfig, ModelServerConfig

from components.base.errors import InputError, PipelineError
from components.results import model_signature
from components.results import version_manifest as manifests
from components.serving.server.errors import RequestError
from components.serving.server.isolated_model import IsolatedModel, Isolation
from components.serving.server.saved_model import LoadedModel, SavedModel
from components.serving.server.warm_up import warm_up

START, LOADING = ModelVersionStatus.START, ModelVersionStatus.LOADING
AVAILABLE, UNLOADING, END = ModelVersionStatus.AVAILABLE, ModelVersionStatus.UNLOADING, ModelVersionStatus.END
POLL_SECONDS = 0.02
"""Time between checks whether the requests in progress have ended."""
_LONGEST_PAUSE_SECONDS = 60.0
"""Longest time until a version that has failed is loaded again."""


def version_folders(config: ModelConfig) -> dict[int, Path]:
    """Return version number → folder of the existing versions that a config selects, in ascending order."""
    base, policy = Path(config.base_path), config.model_version_policy
    folders = [path for path in base.iterdir() if manifests.is_version(path.name)] if base.is_dir() else []
    versions = sorted((int(path.name), path) for path in folders if (path / "saved_model.pb").is_file())
    if policy.HasField("specific"):
        return {number: path for number, path in versions if number in policy.specific.versions}
    return dict(versions if policy.HasField("all") else versions[-(policy.latest.num_versions or 1) :])


def read_configs(file: Path) -> dict[str, ModelConfig]:
    """Read a ModelServerConfig in the text format of protocol buffers; return model name → config.

    Raises:
      RequestError: If the file cannot be read, a name or base_path is missing, a name is repeated or a policy is empty.
    """
    try:
        models = text_format.Parse(file.read_text(), ModelServerConfig()).model_config_list.config
    except (text_format.ParseError, OSError, ValueError) as error:
        raise RequestError(f"{file}: expected a ModelServerConfig as a text proto: {error}") from error
    configs: dict[str, ModelConfig] = {}
    for model in models:
        if not model.name or not model.base_path or model.name in configs:
            raise RequestError(f"{file}: expected a unique name and a base_path, received {model.name!r}")
        policy = model.model_version_policy
        if policy.HasField("specific") and not policy.specific.versions:
            raise RequestError(f"{file}: expected the specific versions of {model.name!r}, received none")
        configs[model.name] = model
    return configs


def load_verified(
    public_key: Path | None,
    allow_unverified: bool,
    threads: int,
    folder: Path,
    row_key: str = "",
    isolation: Isolation | None = None,
) -> LoadedModel:
    """Load a version and warm it up.

    Args:
      public_key: PEM file of the key that model.sig must match. If None, model.sig is ignored.
      allow_unverified: Whether to accept a version without a manifest.
      threads: Number of threads of one op.
      folder: Folder of the version.
      row_key: Feature of tf.Examples that is accepted although the model does not read it; "" for none.
      isolation: Limits of a process for this version alone. If None, this process loads the version.

    Raises:
      InputError: If the version differs from its manifest, or model.sig does not match the key.
      MachineError: If the process of the version ends before the version is loaded.
    """
    if (folder / manifests.NAME).exists():
        manifests.verify(folder)
        if public_key is not None:
            model_signature.verify(folder, public_key)
    elif not allow_unverified:
        headline = f"{folder}: expected a {manifests.NAME}, found none"
        raise InputError(headline, "push the model again, or start the server with --allow_unverified")
    if isolation is not None:
        return IsolatedModel(folder, threads, row_key, isolation)
    model = SavedModel(folder, threads, row_key)
    try:
        warm_up(model, folder)
    except Exception:
        model.close()
        raise
    return model


@dataclass(eq=False)
class Version:
    """One version of a model. As a context manager, it keeps the version loaded until the end of the block.

    Attributes:
      model: Name of the model.
      number: Number of the version.
      folder: Folder of the SavedModel.
      state: State of the version, a value of TensorFlow Serving's ModelVersionStatus.
      error: Why the version could not be loaded; "" if it could.
      saved_model: The loaded model; None unless the version is loaded.
      failures: Number of times that the version has failed after it was loaded.
    """

    model: str
    number: int
    folder: Path
    state: int = START
    error: str = ""
    saved_model: LoadedModel | None = None
    failures: int = 0
    _changed: tuple[int, ...] = ()
    _users: int = 0
    _retry_at: float = 0.0

    def __enter__(self) -> LoadedModel:
        if self.saved_model is None:
            raise _not_loaded(self.model, self.number)
        self._users += 1
        return self.saved_model

    def __exit__(self, *_error: object) -> None:
        self._users -= 1

    def load(self, load: Callable[[Path], LoadedModel]) -> None:
        """Load the version. A failure is stored in `error` and logged."""
        self.state, self._changed = LOADING, self._change_times()
        try:
            self.saved_model = load(self.folder)
            text = f"loaded, {self.saved_model.warm_up_requests} warm-up requests"
            logging.info("model %s: version %d is %s", self.model, self.number, text)
        except Exception as error:
            self.error, remedy = f"{type(error).__name__}: {error}"[:500], "push another version"
            if isinstance(error, PipelineError):
                self.error, remedy = error.headline, error.remedy
            logging.error("model %s: version %d is not loaded: %s; %s", self.model, self.number, self.error, remedy)

    def should_load(self) -> bool:
        """Return whether the version was unloaded or has failed, or its files changed since it failed to load."""
        if self.state != END or time.monotonic() < self._retry_at:
            return False
        return not (self.error and self._changed == self._change_times())

    def end_if_failed(self) -> bool:
        """End a loaded version that cannot answer requests any more; return whether it was ended.

        The version is loaded again: at once after the first failure, then after 2 s, 4 s and so on, up to a minute.
        """
        failure = self.saved_model.find_failure() if self.saved_model and self.state == AVAILABLE else None
        if self.saved_model is None or failure is None:
            return False
        self.saved_model.close()
        self.saved_model, self.state = None, END
        pause = min(2.0**self.failures, _LONGEST_PAUSE_SECONDS) if self.failures else 0.0
        self.failures, self._retry_at = self.failures + 1, time.monotonic() + pause
        logging.error("model %s: version %d has failed: %s; it is loaded again", self.model, self.number, failure)
        return True

    async def unload(self) -> None:
        """Stop accepting requests, wait for the requests in progress, and free the memory."""
        self.state, saved_model, self.saved_model = UNLOADING, self.saved_model, None
        while self._users:
            await asyncio.sleep(POLL_SECONDS)
        if saved_model is not None:
            saved_model.close()
        self.state = END
        logging.info("model %s: version %d is unloaded", self.model, self.number)

    def _change_times(self) -> tuple[int, ...]:
        # A copy may keep the modification times of the original files, but never their inode change times.
        with contextlib.suppress(OSError):
            return tuple(path.stat().st_ctime_ns for path in sorted(self.folder.rglob("*")))
        return ()


class ModelManager:
    """Holds all versions of all models.

    Args:
      read_configs: Function that returns model name → config. If it raises, nothing changes.
      load: Function that loads the version in a folder.

    Attributes:
      on_unload: Function that is called with every version that was unloaded.
      on_failure: Function that is called with every loaded version that has failed.
    """

    def __init__(
        self, read_configs: Callable[[], Mapping[str, ModelConfig]], load: Callable[[Path], LoadedModel]
    ) -> None:
        self._read_configs, self._load, self._updating = read_configs, load, asyncio.Lock()
        self.on_unload: Callable[[Version], None] = lambda version: None
        self.on_failure: Callable[[Version], None] = lambda version: None
        self._versions: dict[str, dict[int, Version]] = {}
        self._labels: dict[str, dict[str, int]] = {}

    async def watch(self, poll_seconds: float) -> None:
        """Update the versions again and again until the task is cancelled."""
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

    async def supervise(self, seconds: float) -> None:
        """End loaded versions that have failed, until the task is cancelled. `update` loads them again.

        This is a separate task, because an update takes as long as loading a version.

        Args:
          seconds: Time between two checks.
        """
        while True:
            for version in self.all():
                if version.end_if_failed():
                    self.on_failure(version)
            await asyncio.sleep(seconds)

    async def update(self) -> None:
        """Load the versions that should be loaded, then unload the others."""
        async with self._updating:
            # Load in the threads of the event loop, so that the threads that run models stay free.
            configs = await asyncio.to_thread(self._read_configs)
            for name, config in configs.items():
                folders = await asyncio.to_thread(version_folders, config)
                versions = self._versions.setdefault(name, {})
                for number, folder in folders.items():
                    if number not in versions or versions[number].should_load():
                        failures = versions[number].failures if number in versions else 0
                        version = versions[number] = Version(name, number, folder, failures=failures)
                        await asyncio.to_thread(version.load, self._load)
                        # No await before _set_labels, so that a request that finds the version also finds its labels.
                        version.state = AVAILABLE if version.saved_model else END
                        self._set_labels(name, config)
                self._set_labels(name, config)
                if not folders or not _find_loaded(versions).isdisjoint(folders):
                    await self._unload(name, versions.keys() - folders.keys() - set(self._labels[name].values()))
            for name in self._versions.keys() - configs.keys():
                await self._unload(name, set(self._versions[name]))
                del self._versions[name]
                self._labels.pop(name, None)

    def _set_labels(self, name: str, config: ModelConfig) -> None:
        """Set a model's labels. A label keeps its version until the label's new version is loaded."""
        loaded, labels = _find_loaded(self._versions[name]), self._labels.get(name, {})
        self._labels[name] = {
            label: number if number in loaded else labels.get(label, number)
            for label, number in config.version_labels.items()
        }

    async def _unload(self, model: str, numbers: set[int]) -> None:
        for version in map(self._versions[model].__getitem__, numbers):
            if version.state == AVAILABLE:
                await version.unload()
                self.on_unload(version)
            if not version.folder.exists():
                del self._versions[model][version.number]

    def find(self, model: str, number: int | None = None, label: str | None = None) -> Version:
        """Return the loaded version with this number or label, by default the greatest version.

        Raises:
          RequestError: If the model or label is unknown, or the version is not loaded.
        """
        versions, labels = self._versions.get(model), self._labels.get(model, {})
        if versions is None:
            raise _not_found(f"expected a model of {sorted(self._versions)}, received {model!r}")
        loaded = _find_loaded(versions)
        if label and label not in labels:
            text = f"model {model!r}: expected a label of {sorted(labels)}, received {label!r}"
            # As in TensorFlow Serving. Labels are unknown until the first version is loaded.
            raise RequestError(text, StatusCode.INVALID_ARGUMENT if loaded else StatusCode.NOT_FOUND)
        number = labels[label] if label else max(loaded, default=None) if number is None else number
        if number is None or number not in loaded:
            raise _not_loaded(model, number)
        return versions[number]

    def status(self, model: str, number: int | None = None) -> list[Version]:
        """Return all versions in descending order, or only the version with this number.

        Raises:
          RequestError: If there is no such version.
        """
        versions = self._versions.get(model, {})
        matches = [versions[key] for key in sorted(versions, reverse=True) if number in (None, key)]
        if not matches:
            suffix = "" if number is None else f", version {number}"
            raise _not_found(f"expected a model of {sorted(self._versions)}, received {model!r}{suffix}")
        return matches

    def is_ready(self) -> bool:
        """Return whether there is a model, and every model has a loaded version."""
        return bool(self._versions) and all(map(_find_loaded, self._versions.values()))

    def all(self) -> list[Version]:
        """Return every version of every model."""
        return [version for versions in self._versions.values() for version in versions.values()]


def _find_loaded(versions: Mapping[int, Version]) -> set[int]:
    return {number for number, version in versions.items() if version.state == AVAILABLE}


def _not_found(message: str) -> RequestError:
    return RequestError(message, StatusCode.NOT_FOUND)


def _not_loaded(model: str, number: int | None) -> RequestError:
    reason = "no version is loaded" if number is None else f"version {number} is not loaded"
    return _not_found(f"model {model!r}: {reason}")
