"""Versions in a push folder, as the Pusher puts them there, without a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.pusher import local_folder
from components.results import version_manifest
from components.results.version_manifest import Provenance

PROVENANCE = Provenance(
    pipeline="taxi",
    version=0,
    run="20261121T162305-eb56",
    created="2026-11-21T16:24:01+00:00",
    spans=(3, 4),
    metrics={"auc": 0.93, "binary_accuracy": 0.9, "calibration": 1.0},
    blessed_by="thresholds",
    config_digest="c0ffee",
    tfx="1.16.0",
    tensorflow="2.16.2",
)

LARGE = "variables/variables.data-00000-of-00001"
"""The large file of a SavedModel."""


def write_model(folder: Path, megabytes: int, seed: int = 0) -> Path:
    """Write files with the names of a SavedModel; no two models have an equal file."""
    (folder / "variables").mkdir(parents=True)
    random = np.random.default_rng(seed)
    (folder / "saved_model.pb").write_bytes(random.bytes(1000))
    (folder / "variables" / "variables.index").write_bytes(random.bytes(100))
    (folder / LARGE).write_bytes(random.bytes(megabytes * (1 << 20)))
    return folder


def push(folder: Path, number: int) -> Path:
    """Push a model of two files as a version with a manifest; return the version's folder."""
    model = folder.parent / "model"
    (model / "variables").mkdir(parents=True, exist_ok=True)
    (model / "saved_model.pb").write_bytes(b"graph" * 1000)
    (model / "variables" / "variables.index").write_bytes(b"values")

    def complete(unfinished: Path, version_number: int) -> None:
        version_manifest.write(unfinished, PROVENANCE.model_copy(update={"version": version_number}))

    return Path(local_folder.add_version(str(model), str(folder), number, complete)[0])
