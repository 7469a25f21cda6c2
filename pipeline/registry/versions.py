"""Push folders and their versions, each with its stage and the content of its manifest."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from components.base.errors import InputError
from components.base.files import is_remote
from components.pusher.config import RolloutConfig
from components.pusher.open_store import open_store
from components.pusher.serving_state import Stages, State
from components.pusher.store import Store
from components.results import model_signature, version_manifest
from components.results.version_manifest import MODEL_SIGNATURE, Folder, Manifest


@dataclass(frozen=True)
class PushFolder:
    """A push folder, and the settings of the commands that work on it.

    Attributes:
      path: Path or URL of the folder.
      settings: Settings for the rollout's files. If None, the settings of the last change are used again.
      apply: Command that makes the proxy reload these files. If empty, no command is run.
      public_key: PEM file with the key that verifies `model.sig`. If None, signatures are not verified.
    """

    path: str
    settings: RolloutConfig | None
    apply: tuple[str, ...] = ()
    public_key: Path | None = None

    @property
    def is_remote(self) -> bool:
        """Whether the folder is in an object store."""
        return is_remote(self.path)

    @functools.cached_property
    def store(self) -> Store:
        """The store that holds the versions and the serving state."""
        return open_store(self.path)

    def state(self) -> State:
        """Return the state that says which versions serve. It is empty if the object store does not support stages."""
        return self.store.read()

    def versions(self) -> list[int]:
        """Return the numbers of the versions in the folder, in ascending order."""
        return self.store.versions()

    def find(self, number: int) -> Folder:
        """Return the folder of a version.

        Raises:
          InputError: The version does not exist.
        """
        existing = self.versions()
        if number not in existing:
            newest = f"the newest is {existing[-1]}" if existing else "no version was pushed yet"
            raise InputError(
                f"{self.path} has no version {number}; {newest}", "list the versions: `python runner.py models`"
            )
        return self.store.version(number)

    def resolve(self, reference: str) -> int:
        """Return the version number that a reference stands for.

        Args:
          reference: A version number, `stable` or `canary`. The empty string stands for the stable version, or for
            the newest version if the object store does not support stages.

        Raises:
          InputError: No version has this stage.
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
                "list the versions: `python runner.py models`; --output DIR names another folder of runs",
            )
        return number

    def verify(self, number: int) -> Manifest:
        """Check a version against its manifest and, with a public key, its signature.

        Returns:
          The manifest of the version.

        Raises:
          InputError: The version does not exist, or its files do not match the manifest or `model.sig`.
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
    """An entry in the list of pushed versions; `models --json` prints its fields.

    The fields from `created` to `digest` come from the manifest. They are empty if it cannot be read.

    Attributes:
      version: Number of the version.
      stage: `stable`, `canary 10 %`, or empty.
      manifest: `signed` if the version has a `model.sig`, `unsigned` if not, `none` if the manifest cannot be read.
      created: Time of the push, ISO 8601 in UTC.
      run: ID of the run that pushed the version.
      spans: Spans of the training data.
      metrics: Values on the whole eval split by metric name.
      blessed_by: `thresholds`, `forced: ` and the reason, or `nobody` if the pipeline does not have an Evaluator.
      bytes: Total size of the version's files.
      digest: Digest of the manifest.
      problem: Reason why the manifest cannot be read. None if it can be read.
      approval: Approver, time, note and account of the push's approval. None if it did not require one.
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
    approval: dict[str, str] | None = None


def list_versions(push_folder: PushFolder) -> list[VersionListEntry]:
    """List all versions, the newest first. This reads the manifests, but does not verify the files."""
    stages = push_folder.state()
    return [
        _make_entry(push_folder, number, _describe_stage(stages, number)) for number in reversed(push_folder.versions())
    ]


def _make_entry(push_folder: PushFolder, number: int, stage: str) -> VersionListEntry:
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
        approval=manifest.approval.model_dump() if manifest.approval else None,
    )


def _describe_stage(stages: Stages, number: int) -> str:
    if number == stages.stable:
        return "stable"
    if stages.canary and number == stages.canary.version:
        return f"canary {stages.canary.percent:g} %"
    return ""
