"""Push folders and their versions, each with its stage and the content of its manifest."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from components import model_signature, version_manifest
from components.errors import InputError
from components.files import is_remote
from components.pusher.config import RolloutConfig
from components.pusher.open_store import open_store
from components.pusher.serving_state import Stages, State
from components.pusher.store import Store
from components.version_manifest import MODEL_SIGNATURE, Folder, Manifest


@dataclass(frozen=True)
class PushFolder:
    """A push folder and the settings of a command on it.

    Attributes:
      path: its path or URL.
      public_key: the PEM file of the key that model.sig is verified with; None: it is not.
      settings: for the rollout's files; None: the settings that they were last written with.
      apply: the command that makes the proxy read these files again; empty: none is run.
    """

    path: str
    settings: RolloutConfig | None
    apply: tuple[str, ...] = ()
    public_key: Path | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return is_remote(self.path)

    @functools.cached_property
    def store(self) -> Store:
        """Where it is kept."""
        return open_store(self.path)

    def state(self) -> State:
        """Returns which versions serve; an empty state if its object store has no stages."""
        return self.store.read()

    def versions(self) -> list[int]:
        """Returns the versions in it, in ascending order."""
        return self.store.versions()

    def find(self, number: int) -> Folder:
        """Returns the folder of a version.

        Raises:
          InputError: the version does not exist.
        """
        existing = self.versions()
        if number not in existing:
            newest = f"the newest is {existing[-1]}" if existing else "no version was pushed yet"
            raise InputError(
                f"{self.path} has no version {number}; {newest}", "list the versions: `python runner.py models`"
            )
        return self.store.version(number)

    def number(self, reference: str) -> int:
        """The version that a reference means.

        Args:
          reference: a number, `stable` or `canary`; "" for the stable version, or for the newest one in an object
            store that has no stages.

        Raises:
          InputError: no version has this stage.
        """
        if version_manifest.is_version(reference):
            return int(reference)
        if not self.store.has_stages and not reference and (existing := self.versions()):
            return existing[-1]
        stages = self.state()
        staged = {"stable": stages.stable, "canary": stages.canary.version if stages.canary else None}
        number = staged.get(reference or "stable")
        if number is None:
            raise InputError(
                f"{self.path}: expected a version, stable or canary, received {reference or 'no stable version'}",
                "list the versions: `python runner.py models`",
            )
        return number

    def verify(self, number: int) -> Manifest:
        """Checks a version against its manifest, and returns the manifest.

        Raises:
          InputError: the version does not exist, or does not match its manifest or model.sig.
        """
        manifest = version_manifest.verify(folder := self.find(number))
        if self.public_key is not None:
            if self.is_remote:
                remedy = "verify a copy on this machine, or unset the variable of push.model_signing.public_key_env"
                raise InputError(f"{folder}: expected a local folder to verify its {MODEL_SIGNATURE}", remedy)
            model_signature.verify(str(folder), self.public_key)
        return manifest


@dataclass(frozen=True)
class VersionListEntry:
    """A pushed version in the list of versions; dumped as JSON by `models --json`.

    Attributes:
      version: its number.
      stage: `stable`, `canary 10 %`, or "".
      manifest: `signed` with a model.sig, `unsigned` without it, or `none` if the manifest cannot be read.
      created: time of the push, ISO 8601 in UTC.
      run: id of the run that pushed it.
      spans: the spans of its training data.
      metrics: metric → value on the whole eval split.
      blessed_by: see Provenance.
      bytes: total size of its files.
      digest: digest of its manifest.
      problem: why the manifest cannot be read.
    """

    version: int
    stage: str
    manifest: str
    created: str | None = None
    run: str | None = None
    spans: tuple[int, ...] = ()
    metrics: dict[str, float] | None = None
    blessed_by: str | None = None
    bytes: int | None = None
    digest: str | None = None
    problem: str | None = None


def entries(push_folder: PushFolder) -> list[VersionListEntry]:
    """Lists all versions, the newest first; their manifests are read, their files are not."""
    stages = push_folder.state()
    return [_entry(push_folder, number, _stage(stages, number)) for number in reversed(push_folder.versions())]


def _entry(push_folder: PushFolder, number: int, stage: str) -> VersionListEntry:
    folder = push_folder.store.version(number)
    try:
        manifest = version_manifest.read(folder)
    except InputError as error:
        return VersionListEntry(number, stage, "none", problem=error.headline)
    return VersionListEntry(
        version=number,
        stage=stage,
        manifest="signed" if version_manifest.is_signed(folder) else "unsigned",
        created=manifest.created,
        run=manifest.run,
        spans=manifest.spans,
        metrics=manifest.metrics,
        blessed_by=manifest.blessed_by,
        bytes=sum(file.bytes for file in manifest.files.values()),
        digest=manifest.digest,
    )


def _stage(stages: Stages, number: int) -> str:
    if number == stages.stable:
        return "stable"
    if stages.canary and number == stages.canary.version:
        return f"canary {stages.canary.percent:g} %"
    return ""
