"""Registers further file systems with TFX. Checked with TFX 1.16 and 1.21."""

from __future__ import annotations

from typing import Any

# TFX registers its own file systems when this module is imported; a later registration with the same number loses.
from tfx.dsl.io import fileio, filesystem_registry

_PRIORITY = 0
"""TFX's file system on TensorFlow has 10, and claims s3://, which TensorFlow itself does not support any more."""


def register(file_system: Any) -> Any:
    """Make TFX's `fileio` use a file system for its schemes, and return `fileio`.

    Hook: the module `filesystem_registry`, which TFX does not document. Registering twice has no effect.

    Args:
      file_system: Class with the static methods of TFX's Filesystem and a list of SUPPORTED_SCHEMES.
    """
    filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY.register(file_system, priority=_PRIORITY)
    return fileio
