"""Changes which versions serve.

Each function verifies the version, updates the state and the rollout's files in the store, and runs `canary.apply`.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence

from components.base.errors import InputError, MachineError
from components.pusher.serving_state import Action, Canary, Stages, State
from pipeline.registry.versions import PushFolder

_APPLY_SECONDS = 60.0
"""Timeout of `canary.apply`. Short, because a rollout cannot watch its canary while the command runs."""


def promote(
    push_folder: PushFolder, number: int, reason: str | None = None, *, expected: Stages | None = None
) -> State:
    """Make a version the stable version.

    If the version was the canary, the canary ends. If another version is the canary, it keeps its share.

    Args:
      push_folder: The push folder.
      number: Number of the version.
      reason: Reason for the change, which the history records.
      expected: Stages that must be in effect before the change. If None, any stages are accepted.

    Raises:
      InputError: The version does not exist or does not match its manifest, or the current stages differ from
        `expected`.
    """

    def decide(current: State) -> Stages:
        canary = None if current.canary and current.canary.version == number else current.canary
        return Stages(stable=number, canary=canary)

    return _change(push_folder, "promote", decide, reason, number, expected)


def unstage(push_folder: PushFolder, number: int, reason: str | None = None) -> State:
    """Stop sending traffic to a version.

    If it is the stable version, the canary ends as well, and no version serves.

    Args:
      push_folder: The push folder.
      number: Number of the version.
      reason: Reason for the change, which the history records.

    Raises:
      InputError: The version is neither the stable version nor the canary.
    """

    def decide(current: State) -> Stages:
        if number not in current.versions:
            raise InputError(
                f"version {number} has no stage: {describe(current)}", "name the stable version or the canary"
            )
        return Stages() if number == current.stable else Stages(stable=current.stable)

    return _change(push_folder, "unstage", decide, reason)


def set_canary(
    push_folder: PushFolder, number: int, percent: float, reason: str | None = None, *, expected: Stages | None = None
) -> State:
    """Make a version the canary, or change the canary's share of the traffic.

    Args:
      push_folder: The push folder.
      number: Number of the version.
      percent: Share of the traffic in percent, between 0 and 100, with at most two decimals.
      reason: Reason for the change, which the history records.
      expected: Stages that must be in effect before the change. If None, any stages are accepted.

    Raises:
      InputError: There is no stable version; the version itself is the stable version; it does not match its
        manifest; or the current stages differ from `expected`.
    """

    def decide(current: State) -> Stages:
        stable = require_stable_version(current, number)
        if stable == number:
            raise InputError(
                f"expected a version other than the stable version, received version {number}, which is stable",
                "name another version",
            )
        return Stages(stable=stable, canary=Canary(version=number, percent=percent))

    return _change(push_folder, "canary", decide, reason, number, expected)


def stop(push_folder: PushFolder, reason: str | None = None, *, expected: Stages | None = None) -> State:
    """End the canary, so that the stable version receives all traffic.

    Args:
      push_folder: The push folder.
      reason: Reason for the change, which the history records.
      expected: Stages that must be in effect before the change. If None, any stages are accepted.

    Raises:
      InputError: There is no canary, or the current stages differ from `expected`.
    """

    def decide(current: State) -> Stages:
        if current.canary is None:
            raise InputError(
                f"there is no canary to stop: {describe(current)}",
                "start a canary with `python runner.py models canary`",
            )
        return Stages(stable=current.stable)

    return _change(push_folder, "stop", decide, reason, expected=expected)


def rollback(push_folder: PushFolder, to: int | None = None, reason: str | None = None) -> State:
    """Make an earlier version the stable version again, and end the canary.

    Args:
      push_folder: The push folder.
      to: Number of the version to return to. If None, the previous stable version.
      reason: Reason for the change, which the history records.

    Raises:
      InputError: There is no previous stable version, or the version does not match its manifest.
    """
    number = to
    if number is None:
        _check_has_stages(push_folder)
        state = push_folder.state()
        number = state.previous(set(push_folder.versions()))
        if number is None:
            raise InputError(
                f"no earlier stable version exists in the push folder; {describe(state)}",
                "name the VERSION; `python runner.py models` lists them",
            )
    return _change(push_folder, "rollback", lambda _: Stages(stable=number), reason, number)


def require_stable_version(stages: Stages, number: int) -> int:
    """Return the stable version, which a canary needs.

    Args:
      stages: The current stages.
      number: Number of the version that becomes the canary. The error suggests to make it stable instead.

    Raises:
      InputError: There is no stable version.
    """
    if stages.stable is None:
        raise InputError(
            "expected a stable version that gets the rest of the traffic, received none",
            f"make the version stable: `python runner.py models promote {number}`",
        )
    return stages.stable


def describe(stages: Stages) -> str:
    """Return the stages in words, such as `stable 1, canary 2 at 10 %`."""
    stable = "no stable version" if stages.stable is None else f"stable {stages.stable}"
    return f"{stable}, canary {stages.canary.version} at {stages.canary.percent:g} %" if stages.canary else stable


def make_conflict_error(expected: Stages, current: State) -> InputError:
    """Return the error to raise if somebody else changed the stages during a rollout."""
    # The history is empty if somebody has deleted the state file.
    change = current.history[-1] if current.history else None
    author = f": {change.by} has changed the stages at {change.at} ({change.action}" if change else ""
    reason = f": {change.reason}" if change and change.reason else ""
    return InputError(
        f"expected {describe(expected)}, received {describe(current)}{author}{reason}{')' if change else ''}",
        "start again if the version is still to be rolled out",
    )


def _check_has_stages(push_folder: PushFolder) -> None:
    if not push_folder.store.has_stages:
        raise InputError(
            f"stages: expected a push folder on a file system or at gs://, s3:// or az://, received {push_folder.path}",
            "set push.directory to such a folder; `models` and `verify` work with this one too",
        )


def _change(
    push_folder: PushFolder,
    action: Action,
    decide: Callable[[State], Stages],
    reason: str | None,
    number: int | None = None,
    expected: Stages | None = None,
) -> State:
    """Change the stages, and run the command that makes the proxy apply them.

    Args:
      push_folder: The push folder.
      action: Action that the history records.
      decide: Function from the current state to the new stages. It is called again if another process changed the
        state in the meantime.
      reason: Reason for the change, which the history records.
      number: Version that receives traffic; it is verified first. None if the change only takes traffic away.
      expected: Stages that must be in effect before the change. If None, any stages are accepted.

    Returns:
      The new state.

    Raises:
      InputError: The push folder does not support stages, the version is unusable, or the current stages differ from
        `expected`.
      MachineError: The command `canary.apply` failed. The stages have changed nevertheless.
    """
    _check_has_stages(push_folder)
    pipeline = None if number is None else push_folder.verify(number).pipeline

    def update(current: State) -> State:
        if expected is not None and current.stages != expected:
            raise make_conflict_error(expected, current)
        stages = decide(current)
        if number is not None:
            # A concurrent push may have removed the version after its verification, or may be about to remove it.
            if number in current.removing:
                raise InputError(f"version {number} is being removed: push.keep", "name another version")
            push_folder.find(number)
        settings = push_folder.settings or current.rollout
        if settings.model_name is None:
            settings = settings.model_copy(update={"model_name": pipeline})
        return current.change_stages(action, stages, get_user(), reason).model_copy(update={"rollout": settings})

    new_state = push_folder.store.change(update)
    # Run the command even if the stages are unchanged, so that repeating a command repairs a failed attempt.
    _run_apply_command(push_folder.apply)
    return new_state


def _run_apply_command(command: Sequence[str]) -> None:
    if not command:
        return
    try:
        # The command's output goes to stderr, because stdout may carry the JSON of --json.
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=_APPLY_SECONDS, check=False
        )
    except OSError as error:
        raise _make_apply_error(command, f"it does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _make_apply_error(command, f"it was killed after {_APPLY_SECONDS:g} s") from error
    if process.returncode:
        raise _make_apply_error(command, f"it ended with exit code {process.returncode}")


def _make_apply_error(command: Sequence[str], problem: str) -> MachineError:
    return MachineError(
        f"canary.apply: {command[0]}: {problem}; the stages and the files are updated, but the proxy may still use the "
        "old ones",
        f"make the proxy read the files: {shlex.join(command)}",
    )


def get_user() -> str:
    """Return the name of the account of this process."""
    # A container may run under a user ID without an entry in the password database.
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
