"""A blessed model that waits for an approval, as the Pusher records it in a property of its output artifact.

The artifact's folder contains the files that an approval publishes. This module does not import heavy packages, so
that commands can read candidates without TFX.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from components.base import recorded_config
from components.base.config_section import Section
from components.base.errors import InputError
from components.base.files import is_remote
from components.pusher.plan import PushPlan
from components.results import version_manifest
from components.results.version_manifest import Folder, LocalFolder, Provenance

_PROPERTY = "candidate"
"""Property of a PushedModel with the JSON of a Candidate, or with the first part of it."""
APPROVAL = "approval"
"""Property of a PushedModel: PENDING, then APPROVED."""
PENDING, APPROVED = "pending", "approved"


class Candidate(Section):
    """What an approval publishes."""

    directory: str
    """Push folder."""
    plan: PushPlan
    """Settings of the push when the run ended."""
    provenance: Provenance
    """Content of the manifest, without the number of the version and the approval."""
    digest: str
    """SHA-256 of the model's files, which an approval compares."""


def to_properties(candidate: Candidate) -> dict[str, str]:
    """Return the properties with which an artifact records a candidate."""
    return recorded_config.parts(candidate.model_dump_json(), _PROPERTY)


def from_properties(properties: Mapping[str, object]) -> Candidate | None:
    """Return the candidate that the properties of an artifact record; None if they do not record any.

    Raises:
      InputError: Another release of the project has recorded the candidate.
    """
    text = recorded_config.join({name: str(value) for name, value in properties.items()}, _PROPERTY)
    if text is None:
        return None
    try:
        return Candidate.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            "the candidate of the run: expected the fields of this release, received those of another release",
            "approve it with the release that ran the pipeline, or run the pipeline again",
        ) from error


def open_model_folder(uri: str) -> Folder:
    """Return the folder with the files of a candidate, on a disk or in an object store."""
    if not is_remote(uri):
        return LocalFolder(uri)
    # Imported here because it imports TFX when a file is opened.
    from components.pusher.remote_folder import FileioFolder

    return FileioFolder(uri)


def compute_digest(uri: str) -> str:
    """Return the digest of a candidate's files; see `Candidate.digest`."""
    return version_manifest.compute_digest(version_manifest.describe(open_model_folder(uri)))
