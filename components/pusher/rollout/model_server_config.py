"""TensorFlow Serving's model config files (ModelServerConfig): which versions to load, and their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from components.pusher.rollout.snapshot import RolloutSnapshot


def labelled(snapshot: RolloutSnapshot) -> str:
    """Returns the file for servers that load all serving versions, behind a proxy that chooses by label."""
    if snapshot.stable is None:
        return _empty()
    # The label stays after the canary's end: a proxy that has not reloaded yet then gets the stable version.
    canary = snapshot.canary.version if snapshot.canary else snapshot.stable
    return _config(snapshot, snapshot.versions, {"stable": snapshot.stable, "canary": canary})


def of_track(snapshot: RolloutSnapshot, track: str) -> str:
    """Returns the file for servers of one track, `stable` or `canary`, behind a proxy that chooses servers."""
    version = snapshot.canary.version if track == "canary" and snapshot.canary else snapshot.stable
    return _empty() if version is None else of_version(snapshot, version)


def of_version(snapshot: RolloutSnapshot, version: int) -> str:
    """Returns the file for servers that load only this version."""
    return _config(snapshot, [version], {})


def _empty() -> str:
    return "model_config_list {\n}\n"


def _config(snapshot: RolloutSnapshot, versions: Sequence[int], labels: Mapping[str, int]) -> str:
    chosen = " ".join(f"versions: {version}" for version in versions)
    lines = [
        "model_config_list {",
        "  config {",
        f"    name: {_quoted(snapshot.name)}",
        f"    base_path: {_quoted(snapshot.base_path)}",
        '    model_platform: "tensorflow"',
        f"    model_version_policy {{ specific {{ {chosen} }} }}",
        *(f"    version_labels {{ key: {_quoted(label)} value: {version} }}" for label, version in labels.items()),
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Returns a text proto's string literal, which has the same escapes as JSON's."""
    return json.dumps(text, ensure_ascii=False)
