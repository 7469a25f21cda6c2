"""The artifact with a model's variants for small devices. EdgeExporter writes it, and the Pusher copies a part."""

from __future__ import annotations

from tfx.types import artifact

PASSED, FAILED = "passed", "failed"
"""Folders of the artifact: files that are pushed, and all other files."""
PUSHED = "edge"
"""Folder of a pushed version that contains the files of PASSED."""


class EdgeModels(artifact.Artifact):  # type: ignore[misc]
    """Variants of a model, with `verdict.json`; see components/edge/executor for the files."""

    # Vertex AI only accepts names of this form.
    TYPE_NAME = "tfx_pipeline.EdgeModels"
