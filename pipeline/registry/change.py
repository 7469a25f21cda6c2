"""Changes which versions serve: each checks the version, then changes state and rollout files under one lock."""

from __future__ import annotations

import contextlib
import getpass
import os
from collections.abc import Callable
from pathlib import Path

from components.errors import InputError
from components.pusher import rollout, state
from components.pusher.state import Action, Canary, Stages, State
from components.version import Manifest
from pipeline.registry.place import Place


def promote(place: Place, number: int, reason: str | None = None) -> State:
    """Makes a version the stable one; if it was the canary, it no longer is.

    Raises:
      InputError: the version is not there, or not as it was pushed.
    """
    name = _checked(place, number).pipeline

    def decide(now: State) -> Stages:
        canary = None if now.canary and now.canary.version == number else now.canary
        return Stages(stable=number, canary=canary)

    return _change(place, "promote", decide, reason, needs=number, name=name)


def unstage(place: Place, number: int, reason: str | None = None) -> State:
    """Takes a version out of the traffic; without a stable one nothing serves, and there is no canary.

    Raises:
      InputError: the version has no stage.
    """

    def decide(now: State) -> Stages:
        if number not in now.versions:
            raise InputError(f"version {number} has no stage: {told(now)}", "name the stable version or the canary")
        return Stages() if number == now.stable else Stages(stable=now.stable)

    return _change(place, "unstage", decide, reason)


def canary(place: Place, number: int, percent: float, reason: str | None = None) -> State:
    """Gives a version a share of the traffic, or another share.

    Raises:
      InputError: there is no stable version beside it, or it is that one, or the version is not as it was pushed.
    """
    name = _checked(place, number).pipeline

    def decide(now: State) -> Stages:
        if now.stable is None:
            raise InputError(
                "expected a stable version that gets the rest of the traffic, found none",
                f"`python runner.py promote {number}` makes it the stable one",
            )
        if now.stable == number:
            raise InputError(
                f"version {number} is the stable one: it gets all of the traffic", "name another version as the canary"
            )
        return Stages(stable=now.stable, canary=Canary(version=number, percent=percent))

    return _change(place, "canary", decide, reason, needs=number, name=name)


def stop(place: Place, reason: str | None = None) -> State:
    """Ends the canary: the stable version gets all of the traffic.

    Raises:
      InputError: there is no canary.
    """

    def decide(now: State) -> Stages:
        if now.canary is None:
            raise InputError(f"there is no canary to stop: {told(now)}", "nothing is left to do")
        return Stages(stable=now.stable)

    return _change(place, "stop", decide, reason)


def rollback(place: Place, to: int | None = None, reason: str | None = None) -> State:
    """Makes the version that was stable before the stable one again, and ends the canary.

    Args:
      place: the push folder.
      to: the version to go back to, if not that one.
      reason: for the history.

    Raises:
      InputError: nothing was stable before, or that version is not as it was pushed.
    """
    number = to
    if number is None:
        _check_local(place)
        now = state.read(place.folder)
        number = now.previous(set(place.versions()))
        if number is None:
            raise InputError(
                f"nothing to go back to: no other version that was stable is there; {told(now)}",
                "name one with --to; `python runner.py models` lists the versions",
            )
    name = _checked(place, number).pipeline
    return _change(place, "rollback", lambda now: Stages(stable=number), reason, needs=number, name=name)


def told(stages: Stages) -> str:
    """The stages in words."""
    stable = "no stable version" if stages.stable is None else f"stable {stages.stable}"
    return f"{stable}, canary {stages.canary.version} at {stages.canary.percent:g} %" if stages.canary else stable


def _checked(place: Place, number: int) -> Manifest:
    _check_local(place)
    return place.verify(number)


def _check_local(place: Place) -> None:
    if place.is_remote:
        raise InputError(
            f"stages are kept beside versions on a file system, and {place.folder} is in an object store",
            "set push.directory to a folder, a mounted bucket say; `models` and `verify` work with this one too",
        )


def _change(
    place: Place,
    action: Action,
    decide: Callable[[State], Stages],
    reason: str | None,
    needs: int | None = None,
    name: str | None = None,
) -> State:
    _check_local(place)
    with state.alone(place.folder):
        now = state.read(place.folder)
        wanted = decide(now)
        if needs is not None:
            # A push may have removed it since it was checked.
            place.find(needs)
        settings = place.settings or now.rollout
        if settings.model_name is None:
            settings = settings.model_copy(update={"model_name": name})
        new = now.changed(action, wanted, _who(), reason).model_copy(update={"rollout": settings})
        state.save(place.folder, new)
        rollout.write(Path(place.folder), new)
    return new


def _who() -> str:
    # A container may run as a user without a name.
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return f"uid {os.getuid()}"
