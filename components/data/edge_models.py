"""The artifact of a model's variants for small devices: EdgeExporter writes it, the Pusher copies a part."""

from __future__ import annotations

from tfx.types import artifact

PASSED, FAILED = "passed", "failed"
"""Its folders: what is pushed, and the other files."""
PUSHED = "edge"
"""The folder of a pushed version that has the files of PASSED."""


class EdgeModels(artifact.Artifact):  # type: ignore[misc]
    """Variants of a model, with `verdict.json`; see components/edge/executor for the files."""

    # Vertex AI takes names of this form only.
    TYPE_NAME = "tfx_pipeline.EdgeModels"
