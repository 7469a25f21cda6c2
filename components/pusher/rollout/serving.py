"""TensorFlow Serving's model config files (ModelServerConfig): which versions to hold, under which labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from components.pusher.rollout.view import View


def labelled(view: View) -> str:
    """For servers that hold all that serves, beneath a proxy that chooses by label."""
    if view.stable is None:
        return _empty()
    # The canary's label outlives the canary: a proxy that has not yet heard of its end finds the stable version.
    canary = view.canary.version if view.canary else view.stable
    return _config(view, view.versions, {"stable": view.stable, "canary": canary})


def of_track(view: View, track: str) -> str:
    """For servers of one track, `stable` or `canary`, beneath a proxy that chooses between servers."""
    version = view.canary.version if track == "canary" and view.canary else view.stable
    return _empty() if version is None else of_version(view, version)


def of_version(view: View, version: int) -> str:
    """For servers that hold this version for ever."""
    return _config(view, [version], {})


def _empty() -> str:
    return "model_config_list {\n}\n"


def _config(view: View, versions: Sequence[int], labels: Mapping[str, int]) -> str:
    chosen = " ".join(f"versions: {version}" for version in versions)
    lines = [
        "model_config_list {",
        "  config {",
        f"    name: {_quoted(view.name)}",
        f"    base_path: {_quoted(view.base_path)}",
        '    model_platform: "tensorflow"',
        f"    model_version_policy {{ specific {{ {chosen} }} }}",
        *(f"    version_labels {{ key: {_quoted(label)} value: {version} }}" for label, version in labels.items()),
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string of a text proto; what JSON escapes, it escapes alike."""
    return json.dumps(text, ensure_ascii=False)
