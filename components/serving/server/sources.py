"""Which models there are and which versions are wanted: from flags, or from a model config of TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from components.serving.server.refusal import invalid
from components.version import is_version


@dataclass(frozen=True)
class Source:
    """A model's folder, whose subfolders with numbers for names are its versions.

    Attributes:
      folder: the base path.
      newest: how many of the greatest versions are wanted; None: all.
      versions: just these are wanted, if any are named.
      labels: label → version.
    """

    folder: Path
    newest: int | None = 1
    versions: frozenset[int] = frozenset()
    labels: Mapping[str, int] = field(default_factory=dict)

    def wanted(self) -> dict[int, Path]:
        """The folders of the wanted versions that are there."""
        there = {
            int(entry.name): entry
            for entry in (self.folder.iterdir() if self.folder.is_dir() else ())
            if is_version(entry.name) and (entry / "saved_model.pb").is_file()
        }
        if self.versions:
            return {version: there[version] for version in sorted(self.versions & there.keys())}
        numbers = sorted(there)
        return {version: there[version] for version in (numbers if self.newest is None else numbers[-self.newest :])}


def read(file: Path) -> dict[str, Source]:
    """The sources that a model config file tells.

    Args:
      file: a ModelServerConfig as a text proto.

    Raises:
      RequestError: it is none.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(file.read_text(), config)
    except (text_format.ParseError, OSError, ValueError) as error:
        raise invalid(f"{file}: expected a ModelServerConfig as a text proto: {error}") from error
    return sources(config)


def sources(config: Any) -> dict[str, Source]:
    """The sources of a ModelServerConfig.

    Raises:
      RequestError: a model has no name or no folder, or stands there twice, or its specific versions are none.
    """
    found: dict[str, Source] = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path or model.name in found:
            raise invalid(f"model config: expected a name of its own and a base_path, received {model.name!r}")
        policy = model.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        newest = None if kind == "all" else (policy.latest.num_versions or 1)
        versions = frozenset(policy.specific.versions if kind == "specific" else ())
        if kind == "specific" and not versions:
            raise invalid(f"model config: expected the versions of {model.name!r} that are specific, received none")
        found[model.name] = Source(Path(model.base_path), newest, versions, dict(model.version_labels))
    return found
