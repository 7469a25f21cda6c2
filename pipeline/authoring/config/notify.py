"""The section `notify`: webhooks and commands that receive failed runs, rejections, approvals, drift and rollbacks."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, PositiveFloat, model_validator
from typing_extensions import Self

from components.base.config_section import Section

Event = Literal["failed", "rejected", "approval", "drift", "rollback"]
"""Events that cause a notification; see `NotifyConfig.events`."""


def _variable(value: object) -> object:
    # Do not repeat the value in the message, because it may be the URL, which is a secret.
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(
            "expected the name of an environment variable that contains the URL, because the config is no place for "
            "secrets; received another text"
        )
    return value


def _words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


Command = Annotated[tuple[str, ...], BeforeValidator(_words, json_schema_input_type=str | tuple[str, ...])]
"""A program and its arguments, as a list or as a text in shell syntax."""


class NotifyConfig(Section):
    """A webhook or a command that receives events as JSON. Its failure is a warning and does not change exit codes."""

    webhook: Annotated[str, BeforeValidator(_variable)] | None = None
    """Name of the environment variable with the URL, which is a secret. The JSON is sent by POST."""
    command: Annotated[Command, Field(min_length=1)] | None = None
    """Program and arguments, which are run without a shell. The program reads the JSON from standard input."""
    events: tuple[Event, ...] = get_args(Event)
    """Events to send. failed: a run failed; rejected: a gate rejected the data or the model; approval: a
    model waits for `models approve`; drift: `due` or `monitor` found drift; rollback: `models rollback` restored a
    version."""
    timeout_seconds: PositiveFloat = 10
    """Time limit in seconds. After that, the request to the webhook is abandoned, or the command is killed."""

    @model_validator(mode="after")
    def _one_receiver(self) -> Self:
        if (self.webhook is None) == (self.command is None):
            received = "none" if self.webhook is None else "both"
            raise ValueError(f"expected either webhook or command, received {received}")
        return self
