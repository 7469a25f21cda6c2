"""Import what the process of a version needs. Multiprocessing's fork server imports this module once for all versions.

A process with a running TensorFlow runtime cannot be forked, so nothing here may call an op. Only `isolated_model`
refers to this module, by name.
"""

from __future__ import annotations

import importlib

from components.compat.tensorflow import import_for_predictions


def _preload() -> None:
    import_for_predictions()
    importlib.import_module("components.serving.server.isolated_model")


_preload()
