"""Changes which versions serve: verifies the version, then has its store update the state and the rollout's files."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence

from components.errors import InputError, MachineError
from components.pusher.serving_state import Action, Canary, Stages, State
from pipeline.registry.versions import PushFolder

_APPLY_SECONDS = 60.0
"""For `canary.apply`: a rollout does not look at its canary meanwhile."""


def promote(
    push_folder: PushFolder, number: int, reason: str | None = None, *, expected: Stages | None = None
) -> State:
    """Makes a version the stable one; if it was the canary, there is no canary afterwards.

    Args:
      push_folder: the push folder.
      number: the version.
      reason: for the history.
      expected: the stages before the change; None: any.

    Raises:
      InputError: the version does not exist, does not match its manifest, or the stages are others than expected.
    """

    def decide(now: State) -> Stages:
        canary = None if now.canary and now.canary.version == number else now.canary
        return Stages(stable=number, canary=canary)

    return _change(push_folder, "promote", decide, reason, number, expected)


def unstage(push_folder: PushFolder, number: int, reason: str | None = None) -> State:
    """Removes a version from the traffic. Without a stable version nothing serves, and there is no canary.

    Raises:
      InputError: the version has no stage.
    """

    def decide(now: State) -> Stages:
        if number not in now.versions:
            raise InputError(f"version {number} has no stage: {describe(now)}", "name the stable version or the canary")
        return Stages() if number == now.stable else Stages(stable=now.stable)

    return _change(push_folder, "unstage", decide, reason)


def canary(
    push_folder: PushFolder, number: int, percent: float, reason: str | None = None, *, expected: Stages | None = None
) -> State:
    """Gives a version a share of the traffic, or another share.

    Args:
      push_folder: the push folder.
      number: the version.
      percent: its share, between 0 and 100, with at most two decimals.
      reason: for the history.
      expected: the stages before the change; None: any.

    Raises:
      InputError: there is no stable version, or it is this one; the version does not match its manifest; or the stages
        are others than expected.
    """

    def decide(now: State) -> Stages:
        stable = stable_version(now, number)
        if stable == number:
            raise InputError(
                f"version {number} is the stable one, which gets all of the traffic", "name another version"
            )
        return Stages(stable=stable, canary=Canary(version=number, percent=percent))

    return _change(push_folder, "canary", decide, reason, number, expected)


def stop(push_folder: PushFolder, reason: str | None = None, *, expected: Stages | None = None) -> State:
    """Ends the canary: the stable version gets all of the traffic.

    Args:
      push_folder: the push folder.
      reason: for the history.
      expected: the stages before the change; None: any.

    Raises:
      InputError: there is no canary, or the stages are others than expected.
    """

    def decide(now: State) -> Stages:
        if now.canary is None:
            raise InputError(f"there is no canary to stop: {describe(now)}", "start one with `python runner.py canary`")
        return Stages(stable=now.stable)

    return _change(push_folder, "stop", decide, reason, expected=expected)


def rollback(push_folder: PushFolder, to: int | None = None, reason: str | None = None) -> State:
    """Makes the previous stable version the stable one again, and ends the canary.

    Args:
      push_folder: the push folder.
      to: the version to go back to; None: the previous stable one.
      reason: for the history.

    Raises:
      InputError: there is no previous stable version, or the version does not match its manifest.
    """
    number = to
    if number is None:
        _check_has_stages(push_folder)
        now = push_folder.state()
        number = now.previous(set(push_folder.versions()))
        if number is None:
            raise InputError(
                f"no earlier stable version exists in the push folder; {describe(now)}",
                "name a version with --to; `python runner.py models` lists them",
            )
    return _change(push_folder, "rollback", lambda now: Stages(stable=number), reason, number)


def stable_version(stages: Stages, number: int) -> int:
    """The stable version, beside which version `number` is to be a canary.

    Raises:
      InputError: there is none.
    """
    if stages.stable is None:
        raise InputError(
            "expected a stable version that gets the rest of the traffic, received none",
            f"make the version stable: `python runner.py promote {number}`",
        )
    return stages.stable


def describe(stages: Stages) -> str:
    """Returns the stages in words, such as `stable 1, canary 2 at 10 %`."""
    stable = "no stable version" if stages.stable is None else f"stable {stages.stable}"
    return f"{stable}, canary {stages.canary.version} at {stages.canary.percent:g} %" if stages.canary else stable


def changed_meanwhile(expected: Stages, now: State) -> InputError:
    """Returns the error for stages that somebody else has changed."""
    # Without a history somebody has deleted the file.
    change = now.history[-1] if now.history else None
    who = f": {change.by} has changed the stages at {change.at} ({change.action}" if change else ""
    why = f": {change.reason}" if change and change.reason else ""
    return InputError(
        f"expected {describe(expected)}, received {describe(now)}{who}{why}{')' if change else ''}",
        "start again if the version is still to be rolled out",
    )


def _check_has_stages(push_folder: PushFolder) -> None:
    if not push_folder.store.has_stages:
        raise InputError(
            f"stages: expected a push folder on a file system or at gs://, received {push_folder.path}",
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
    """Changes the stages.

    Args:
      push_folder: the push folder.
      action: for the history.
      decide: state → new stages; called again if another process has changed the state in the meantime.
      reason: for the history.
      number: the version that gets traffic, which is verified first; None: no version does.
      expected: the stages before the change; None: any.
    """
    _check_has_stages(push_folder)
    pipeline = None if number is None else push_folder.verify(number).pipeline

    def update(now: State) -> State:
        if expected is not None and now.stages != expected:
            raise changed_meanwhile(expected, now)
        stages = decide(now)
        if number is not None:
            # A push may have removed the version since it was verified, or be removing it.
            if number in now.removing:
                raise InputError(f"version {number} is being removed: push.keep", "name another version")
            push_folder.find(number)
        settings = push_folder.settings or now.rollout
        if settings.model_name is None:
            settings = settings.model_copy(update={"model_name": pipeline})
        return now.changed(action, stages, _user(), reason).model_copy(update={"rollout": settings})

    new = push_folder.store.change(update)
    # Also where nothing has changed: so a repeated command repairs what a failed one has left.
    _apply(push_folder.apply)
    return new


def _apply(command: Sequence[str]) -> None:
    if not command:
        return
    try:
        # Standard output belongs to --json.
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=_APPLY_SECONDS, check=False
        )
    except OSError as error:
        raise _not_applied(command, f"it does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _not_applied(command, f"it was killed after {_APPLY_SECONDS:g} s") from error
    if ended.returncode:
        raise _not_applied(command, f"it ended with exit code {ended.returncode}")


def _not_applied(command: Sequence[str], problem: str) -> MachineError:
    return MachineError(
        f"canary.apply: {command[0]}: {problem}; the stages and the files are changed, the proxy may have the old ones",
        f"make the proxy read them: {shlex.join(command)}",
    )


def _user() -> str:
    # In a container the user may have no name.
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
