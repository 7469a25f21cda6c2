"""Render TensorFlow Serving's model config files (ModelServerConfig): the versions to load, and their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set

from components.pusher.rollout.snapshot import RolloutSnapshot


def render_labels(snapshot: RolloutSnapshot) -> str:
    """Return the file for servers that load all serving versions, behind a proxy that selects a label."""
    if snapshot.stable is None:
        return _render_empty_config()
    return _render_config(snapshot, snapshot.versions, _choose_labels(snapshot))


def render_announcement(before: str, snapshot: RolloutSnapshot, existing: Set[int]) -> str | None:
    """Return the file that must be read before the file of `render_labels`; None if none is necessary.

    TensorFlow Serving refuses a file that moves a label to a version that it has not loaded, and does not load the
    version of a refused file. Therefore an earlier file must list the version, with the labels as they were. After that
    the server may read the final file at any time: it refuses it until the version is loaded, and tries again.

    Args:
      before: Content of the file that servers read now.
      snapshot: Current state of the push folder.
      existing: Numbers of the versions in the push folder.
    """
    # A server of another model, or of another folder, starts without labels, and accepts any.
    if snapshot.stable is None or not all(line in before for line in _render_model(snapshot)):
        return None
    listed = {int(version) for version in re.findall(r" versions: ([0-9]+)", before)}
    labels = {label: int(version) for label, version in re.findall(r'key: "(\w+)" value: ([0-9]+)', before)}
    new_labels = _choose_labels(snapshot)
    moved = {version for label, version in new_labels.items() if labels.get(label, version) != version}
    if moved <= listed or not existing >= set(labels.values()):
        return None
    return _render_config(snapshot, sorted((listed & existing) | {*snapshot.versions}), labels)


def render_track(snapshot: RolloutSnapshot, track: str) -> str:
    """Return the file for the servers of a track, `stable` or `canary`, behind a proxy that selects a server."""
    version = snapshot.canary.version if track == "canary" and snapshot.canary else snapshot.stable
    return _render_empty_config() if version is None else render_version(snapshot, version)


def render_version(snapshot: RolloutSnapshot, version: int) -> str:
    """Return the file for servers that load only this version."""
    return _render_config(snapshot, [version], {})


def _choose_labels(snapshot: RolloutSnapshot) -> dict[str, int]:
    """Return label → version. Without a stable version, no version has a label."""
    if snapshot.stable is None:
        return {}
    # Keep the label `canary` after the canary has ended: a proxy that has not reloaded yet then reaches the stable
    # version.
    return {"stable": snapshot.stable, "canary": snapshot.canary.version if snapshot.canary else snapshot.stable}


def _render_empty_config() -> str:
    return "model_config_list {\n}\n"


def _render_config(snapshot: RolloutSnapshot, versions: Sequence[int], labels: Mapping[str, int]) -> str:
    policy = " ".join(f"versions: {version}" for version in versions)
    lines = [
        "model_config_list {",
        "  config {",
        *_render_model(snapshot),
        '    model_platform: "tensorflow"',
        f"    model_version_policy {{ specific {{ {policy} }} }}",
        *(f"    version_labels {{ key: {_quote(label)} value: {version} }}" for label, version in labels.items()),
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _render_model(snapshot: RolloutSnapshot) -> list[str]:
    return [f"    name: {_quote(snapshot.name)}", f"    base_path: {_quote(snapshot.base_path)}"]


def _quote(text: str) -> str:
    """Return a string literal of a text proto, which uses the same escape sequences as JSON."""
    return json.dumps(text, ensure_ascii=False)
