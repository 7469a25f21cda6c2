"""Which models and versions to serve: from options, or from a ModelServerConfig of TensorFlow Serving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from components.serving.server.errors import InvalidRequestError
from components.version_manifest import is_version


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
        folders = {int(each.name): each for each in entries if is_version(each.name)}
        folders = {
            number: folders[number] for number in sorted(folders) if (folders[number] / "saved_model.pb").is_file()
        }
        if self.versions:
            return {number: folder for number, folder in folders.items() if number in self.versions}
        return folders if self.newest is None else dict([*folders.items()][-self.newest :])


def read(file: Path) -> dict[str, ModelSource]:
    """Read a model config file, a ModelServerConfig as a text proto.

    Returns:
      Model name → source.

    Raises:
      InvalidRequestError: the file cannot be read or is not valid.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(file.read_text(), config)
    except (text_format.ParseError, OSError, ValueError) as error:
        raise InvalidRequestError(f"{file}: expected a ModelServerConfig as a text proto: {error}") from error
    return sources(config)


def sources(config: Any, root: Path | None = None) -> dict[str, ModelSource]:
    """Convert a ModelServerConfig message.

    Args:
      config: the message.
      root: if given, every base_path must be inside this folder after symbolic links are resolved.

    Returns:
      Model name → source.

    Raises:
      InvalidRequestError: a name or base_path is missing, duplicate or outside of the root; or a policy is empty.
    """
    result: dict[str, ModelSource] = {}
    for model in config.model_config_list.config:
        if not model.name or not model.base_path or model.name in result:
            raise InvalidRequestError(f"model config: expected a unique name and a base_path, received {model.name!r}")
        folder = Path(model.base_path)
        if root is not None and not folder.resolve().is_relative_to(root.resolve()):
            raise InvalidRequestError(f"model config: expected a base_path inside {root}, received {model.base_path!r}")
        policy = model.model_version_policy
        kind = policy.WhichOneof("policy_choice")
        versions = frozenset(policy.specific.versions if kind == "specific" else ())
        if kind == "specific" and not versions:
            raise InvalidRequestError(f"model config: expected the specific versions of {model.name!r}, received none")
        newest = None if kind == "all" else (policy.latest.num_versions or 1)
        result[model.name] = ModelSource(folder, newest, versions, dict(model.version_labels))
    return result
