"""Approve the push of a blessed model: `push.approval: required`.

The steps of an approval are ordered so that a repetition finishes what an interrupted one began. The version appears in
the push folder atomically, and its manifest already contains the approval. Its stage is assigned, and last the approval
is recorded in ML Metadata. A repetition finds the version by its manifest, and keeps the approver of the first attempt.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from components.base.errors import GateError, InputError
from components.base.files import exclusive_lock, is_remote
from components.pusher import candidate as candidates
from components.pusher.candidate import APPROVAL, APPROVED, PENDING, Candidate
from components.pusher.open_store import open_store
from components.pusher.publish import finish, publish
from components.pusher.store import Store as PushStore
from components.pusher.store import private_key_file
from components.results import version_manifest
from components.results.version_manifest import Approval, Manifest
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.store import Artifact, Execution, Run, Store, Value
from pipeline.registry.promotion import get_user

_PUSHER = "Pusher"
_OUTPUT = "pushed_model"
_LOCK = ".approval.lock"
_DECIDED_ON = ("model", "model_blessing", "infra_blessing", "evaluation")
"""Inputs of the Pusher that an approver has to look at. The approval's execution has the same inputs."""


@dataclass(frozen=True)
class PendingModel:
    """A blessed model that waits for an approval.

    Attributes:
      run: ID of the run that trained it.
      created: End of its evaluation, ISO 8601 in UTC.
      metrics: Values on the whole eval split by metric name.
      digest: SHA-256 of its files.
    """

    run: str
    created: str
    metrics: Mapping[str, float]
    digest: str


@dataclass(frozen=True)
class ApprovedVersion:
    """A version whose push was approved.

    Attributes:
      run: ID of the run that trained it.
      version: Number of the version.
      path: Path or URL of the version.
      directory: Path or URL of the push folder.
      approval: The approval.
      is_new: Whether this call published the version. If not, it was approved before.
    """

    run: str
    version: int
    path: str
    directory: str
    approval: Approval
    is_new: bool


def list_pending(store: Store, pipeline: str) -> list[PendingModel]:
    """Return the models of a pipeline that wait for an approval, newest first.

    Models whose files gc has removed are left out.
    """
    pending = []
    for artifact in reversed(store.artifacts_with("PushedModel", APPROVAL, PENDING)):
        candidate = candidates.from_properties(artifact.properties)
        if candidate is None or candidate.provenance.pipeline != pipeline or artifact.state != "LIVE":
            continue
        provenance = candidate.provenance
        pending.append(PendingModel(provenance.run, provenance.created, provenance.metrics, candidate.digest))
    return pending


def check_pending(store: Store, run: Run) -> None:
    """Check that the model of a run waits for an approval.

    Raises:
      InputError: The run has not ended its push, or does not wait.
      GateError: The model is not blessed, or was approved before.
    """
    artifact = _find_pushed_model(store, run)
    _read_candidate(store, run, artifact)
    if artifact.properties.get(APPROVAL) == APPROVED:
        properties = artifact.properties
        raise GateError(
            f"run {run.name}: expected a model that waits for an approval, received version "
            f"{properties.get('pushed_version')}, which {properties.get('approved_by')} has approved",
            "nothing is left to approve",
        )


def approve(location: Location, store: Store, run: Run, by: str, note: str) -> ApprovedVersion:
    """Publish the model of a run, and record who approved it.

    Args:
      location: Location of the metadata store.
      store: The same store, opened for reading.
      run: The run. Its model must be blessed, and wait for an approval.
      by: Name of the approver.
      note: Reason for the approval.

    Returns:
      The version. If it was approved before, its approval is unchanged.

    Raises:
      InputError: The name or the note is empty or too long, or the run does not wait for an approval.
      GateError: The model is not blessed, or its files have changed since the Pusher recorded it.
      OSError: The model cannot be copied. No part of the copy is visible.
    """
    approval = _make_approval(by, note)
    recorded = _read_candidate(store, run, _find_pushed_model(store, run))
    push = recorded.plan.push
    # Read the key first: nothing is published if it is missing.
    private_key = private_key_file(os.environ, push, recorded.directory)
    with _exclude_others(location, recorded.directory):
        # Another process may have approved the model while this process waited for the lock.
        artifact = _find_pushed_model(store, run)
        candidate = _read_candidate(store, run, artifact)
        _check_content(run, artifact, candidate)
        push_store = open_store(candidate.directory)
        existing = _find_version(push_store, candidate)
        if artifact.properties.get(APPROVAL) == APPROVED:
            return _describe_approved(run, artifact, candidate, existing)
        if existing is not None and existing.approval is not None:
            # An earlier attempt was interrupted after the version had become visible.
            approval, number = existing.approval, existing.version
            path = finish(push_store, candidate.plan, str(push_store.version(number)), number, existing)
        else:
            provenance = candidate.provenance.model_copy(update={"approval": approval, "created": approval.at})
            path, number = publish(push_store, candidate.plan, artifact.uri, provenance, private_key)
        _record(location, store, run, artifact, approval, path, number)
    return ApprovedVersion(run.name, number, path, candidate.directory, approval, is_new=existing is None)


def _make_approval(by: str, note: str) -> Approval:
    _check_text("--by", by, 100)
    _check_text("--note", note, 500)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Approval(by=by.strip(), at=now, note=note.strip(), account=get_user())


def _check_text(option: str, text: str, longest: int) -> None:
    if not text.strip():
        received = "an empty text"
    elif len(text) > longest:
        received = f"{len(text)} characters"
    elif not text.isprintable():
        received = "control characters"
    else:
        return
    raise InputError(
        f"{option}: expected 1 to {longest} characters on one line, received {received}",
        "name the person who approves, and the reason: `--by NAME --note TEXT`",
    )


def _find_pushed_model(store: Store, run: Run) -> Artifact:
    """Return the Pusher's output in a run, as the store has it now."""
    execution = store.execution(run.name, _PUSHER)
    outputs = store.outputs(execution).get(_OUTPUT) if execution is not None and execution.succeeded else None
    if not outputs:
        raise InputError(
            f"run {run.name}: expected a run whose Pusher has ended, received one without its output",
            f"wait for the end of the run, or continue it with --resume {run.name}",
        )
    return outputs[0]


def _read_candidate(store: Store, run: Run, artifact: Artifact) -> Candidate:
    """Return the candidate of a run, after checking that its model is blessed.

    Raises:
      InputError: The model was pushed without an approval.
      GateError: The model is not blessed.
    """
    for type_name, reason in (("ModelBlessing", "the Evaluator"), ("InfraBlessing", "the serving check")):
        blessings = store.artifacts(run.name, type_name)
        if blessings and blessings[-1].properties.get("blessed") != 1:
            raise GateError(
                f"run {run.name}: expected a blessed model, received a model that {reason} did not bless",
                f"see the reason: `python runner.py runs report {run.name}`; then train a better model",
            )
    candidate = candidates.from_properties(artifact.properties)
    if candidate is None:
        version = artifact.properties.get("pushed_version")
        received = f"version {version}, which was pushed without one" if version else "a model that was not pushed"
        raise InputError(
            f"run {run.name}: expected a model that waits for an approval, received {received}",
            "set push.approval: required, and run the pipeline again",
        )
    return candidate


def _check_content(run: Run, artifact: Artifact, candidate: Candidate) -> None:
    """Raise a GateError if the files are not the files that the Pusher recorded after the evaluation."""
    try:
        digest = candidates.compute_digest(artifact.uri)
    except OSError as error:
        raise InputError(
            f"run {run.name}: its model {artifact.uri} cannot be read: {error.strerror or error}",
            "approve it on a machine that reaches the artifacts; or, if gc removed them, run the pipeline again",
        ) from error
    if digest != candidate.digest:
        raise GateError(
            f"run {run.name}: expected the model that was evaluated, with SHA-256 {candidate.digest[:12]}, received "
            f"other files in {artifact.uri}, with SHA-256 {digest[:12]}",
            "find out who changed the files, and run the pipeline again with --no-cache",
        )


def _find_version(push_store: PushStore, candidate: Candidate) -> Manifest | None:
    """Return the manifest of the version that an approval of this candidate has published; None if there is none."""
    for number in reversed(push_store.versions()):
        with contextlib.suppress(InputError):
            manifest = version_manifest.read(push_store.version(number))
            is_same_run = manifest.run == candidate.provenance.run and manifest.approval is not None
            if is_same_run and version_manifest.compute_digest(manifest.files) == candidate.digest:
                return manifest
    return None


def _describe_approved(
    run: Run, artifact: Artifact, candidate: Candidate, existing: Manifest | None
) -> ApprovedVersion:
    properties = {name: str(value) for name, value in artifact.properties.items()}
    approval = Approval(
        by=properties["approved_by"],
        at=properties["approved_at"],
        note=properties["approval_note"],
        account=properties["approval_account"],
    )
    number, path = int(properties["pushed_version"]), properties["pushed_destination"]
    if existing is not None and existing.version != number:
        raise GateError(
            f"run {run.name}: expected version {number}, which {approval.by} approved, received version "
            f"{existing.version} of the same model in {candidate.directory}",
            "verify both versions: `python runner.py models verify`",
        )
    return ApprovedVersion(run.name, number, path, candidate.directory, approval, is_new=False)


def _record(
    location: Location, store: Store, run: Run, artifact: Artifact, approval: Approval, path: str, number: int
) -> None:
    # Imported late, because it imports ML Metadata's library, which commands that only list models do not need.
    from pipeline.core.metadata import approvals

    execution = store.execution(run.name, _PUSHER)
    properties: dict[str, Value] = {
        APPROVAL: APPROVED,
        "approved_by": approval.by,
        "approved_at": approval.at,
        "approval_note": approval.note,
        "approval_account": approval.account,
        # The properties that TFX's Pusher sets.
        "pushed": 1,
        "pushed_destination": path,
        "pushed_version": str(number),
    }
    approvals.record(location, run, _list_inputs(store, execution), artifact.id, properties)


def _list_inputs(store: Store, execution: Execution | None) -> list[tuple[str, int]]:
    events = store.events([execution.id]) if execution is not None else []
    return [(event.key, event.artifact) for event in events if event.key in _DECIDED_ON]


@contextlib.contextmanager
def _exclude_others(location: Location, directory: str) -> Iterator[None]:
    """Hold a lock within the block, so that two approvals at once publish a model once.

    A local push folder is locked by a file in it, an object store by the metadata store.
    """
    from pipeline.core.metadata import approvals

    with contextlib.ExitStack() as stack:
        stack.enter_context(approvals.exclude_others(location))
        if not is_remote(directory):
            try:
                Path(directory).mkdir(parents=True, exist_ok=True)
                stack.enter_context(exclusive_lock(Path(directory) / _LOCK))
            except OSError as error:
                raise InputError(
                    f"cannot write to the push folder {directory}: {error.strerror}",
                    "approve the model with an account that may write to it",
                ) from error
        yield
