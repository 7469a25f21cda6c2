"""The pushed versions, each with its stage and what its manifest says."""

from __future__ import annotations

from dataclasses import dataclass

from components import version
from components.errors import InputError
from components.pusher import state
from components.pusher.state import Stages
from pipeline.registry.place import Place


@dataclass(frozen=True)
class Row:
    """A pushed version.

    Attributes:
      version: its number.
      stage: `stable`, `canary 10 %`, or nothing.
      manifest: `signed`, `unsigned`, or `none` where it cannot be read.
      created: when it was pushed.
      run: the run that pushed it.
      spans: of its data.
      metrics: on the whole eval split.
      blessed_by: what let it through.
      bytes: of all its files.
      digest: of its manifest.
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


def rows(place: Place) -> list[Row]:
    """All versions, the newest first; their manifests are read, their files are not."""
    stages = Stages() if place.is_remote else state.read(place.folder).stages
    return [_row(place, number, _stage(stages, number)) for number in reversed(place.versions())]


def _row(place: Place, number: int, stage: str) -> Row:
    try:
        manifest = version.read(place.find(number))
    except InputError as error:
        return Row(number, stage, "none", problem=error.headline)
    return Row(
        version=number,
        stage=stage,
        manifest="signed" if manifest.signature else "unsigned",
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
