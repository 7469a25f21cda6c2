"""The push folder that a command is about, and what has to be known to act on it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from components import version
from components.errors import InputError
from components.pusher import state, target
from components.pusher.config import RolloutConfig
from components.version import Folder, LocalFolder, Manifest
from pipeline.commands.options import load_config


@dataclass(frozen=True)
class Place:
    """A push folder.

    Attributes:
      folder: its path or URL.
      key: what manifests have to be signed with; without one, signatures are not looked at.
      settings: for the rollout's files; none: as they were written last.
    """

    folder: str
    key: bytes | None
    settings: RolloutConfig | None

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return target.is_remote(self.folder)

    def versions(self) -> list[int]:
        """The versions in it, in order."""
        if self.is_remote:
            from components.pusher import remote

            return remote.versions(self.folder)
        return state.versions(self.folder)

    def find(self, number: int) -> Folder:
        """One of them.

        Raises:
          InputError: it is not there.
        """
        there = self.versions()
        if number not in there:
            known = f"the newest there is {there[-1]}" if there else "there is none yet"
            raise InputError(
                f"{self.folder} has no version {number}; {known}", "`python runner.py models` lists the versions"
            )
        uri = f"{self.folder.rstrip('/')}/{number}"
        if self.is_remote:
            from components.pusher import remote

            return remote.FileioFolder(uri)
        return LocalFolder(uri)

    def verify(self, number: int) -> Manifest:
        """Holds a version against its manifest.

        Raises:
          InputError: it is not there, or not as it was pushed.
        """
        return version.verify(self.find(number), self.key)


def of_options(options: argparse.Namespace) -> Place:
    """The place that --models names, or else the config.

    Raises:
      InputError: the config is not valid, or the folder is not there.
    """
    if options.models is not None:
        if not target.is_remote(options.models) and not Path(options.models).is_dir():
            raise InputError(
                f"--models: expected a push folder, received {options.models}", "name the folder with the versions"
            )
        return Place(options.models, version.signing_key(os.environ), None)
    # Imported late: --models needs no config.
    from pipeline.paths import Paths

    config = load_config(options).config
    name = config.push.rollout.model_name or config.pipeline.name
    settings = config.push.rollout.model_copy(update={"model_name": name})
    folder, key = Paths.of(config).pushed, version.signing_key(os.environ, config.push.signing_key_env)
    return Place(folder, key, settings)
