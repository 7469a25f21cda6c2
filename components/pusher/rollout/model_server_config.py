"""Render TensorFlow Serving's model config files (ModelServerConfig): the versions to load, and their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from components.pusher.rollout.snapshot import RolloutSnapshot


def render_labels(snapshot: RolloutSnapshot) -> str:
    """Return the file for servers that load all serving versions, behind a proxy that selects a label."""
    if snapshot.stable is None:
        return _render_empty_config()
    # Keep the label `canary` after the canary has ended: a proxy that has not reloaded yet then reaches the stable
    # version.
    canary = snapshot.canary.version if snapshot.canary else snapshot.stable
    return _render_config(snapshot, snapshot.versions, {"stable": snapshot.stable, "canary": canary})


def render_track(snapshot: RolloutSnapshot, track: str) -> str:
    """Return the file for the servers of a track, `stable` or `canary`, behind a proxy that selects a server."""
    version = snapshot.canary.version if track == "canary" and snapshot.canary else snapshot.stable
    return _render_empty_config() if version is None else render_version(snapshot, version)


def render_version(snapshot: RolloutSnapshot, version: int) -> str:
    """Return the file for servers that load only this version."""
    return _render_config(snapshot, [version], {})


def _render_empty_config() -> str:
    return "model_config_list {\n}\n"


def _render_config(snapshot: RolloutSnapshot, versions: Sequence[int], labels: Mapping[str, int]) -> str:
    policy = " ".join(f"versions: {version}" for version in versions)
    lines = [
        "model_config_list {",
        "  config {",
        f"    name: {_quote(snapshot.name)}",
        f"    base_path: {_quote(snapshot.base_path)}",
        '    model_platform: "tensorflow"',
        f"    model_version_policy {{ specific {{ {policy} }} }}",
        *(f"    version_labels {{ key: {_quote(label)} value: {version} }}" for label, version in labels.items()),
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """Return a string literal of a text proto, which uses the same escape sequences as JSON."""
    return json.dumps(text, ensure_ascii=False)
