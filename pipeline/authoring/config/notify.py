"""The section `notify`: who is notified of failed runs, rejections, drift and rollbacks."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator
from typing_extensions import Self

from components.base.config_section import Section

Event = Literal["failed", "rejected", "drift", "rollback"]
"""What is notified of."""


def _variable(value: object) -> object:
    # The message does not repeat the value: it may be a URL, which is a secret.
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "expected the name of an environment variable that contains the URL, because the config is no place for "
            "secrets; received another text"
        )
    return value


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


Command = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""A program and its arguments, as a list or as a text in a shell's syntax."""


class NotifyConfig(Section):
    """A webhook or a command that receives each event as JSON; its failure is a warning and changes no exit code."""

    webhook: Annotated[str, BeforeValidator(_variable)] | None = None
    """The environment variable with the URL, which no file contains; the JSON is sent by POST."""
    command: Annotated[Command, Field(min_length=1)] | None = None
    """A program and its arguments, without a shell; it reads the JSON from standard input."""
    events: tuple[Event, ...] = get_args(Event)
    """failed: a run failed. rejected: a gate rejected the data or the model. drift: `due` or `monitor` found
    drift. rollback: `models rollback` restored a version."""
    timeout_seconds: PositiveFloat = 10
    """A webhook that has not answered by then is given up, a command is killed."""

    @model_validator(mode="after")
    def _one_receiver(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            received = "none" if self.webhook is None else "both"
            raise ValueError(f"expected either webhook or command, received {received}")
        return self
