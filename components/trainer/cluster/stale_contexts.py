"""The state that a lost chief has left on the ps and workers that continue: its variables, datasets and functions.

TensorFlow keeps it in a context per chief, until ten minutes have passed without a message of this chief. Meanwhile a
ps would hold the tables twice. So the supervisor tells the next chief which contexts to close.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from components.compat.grpc import close_context
from components.trainer.cluster.tf_config import Role

_VARIABLE = "STALE_CONTEXTS"
_SECONDS = 10.0
"""Time limit for closing a context on a task, which first ends the calls that are running in it."""


def set_environment(contexts: Sequence[int]) -> None:
    """Set the contexts that `close` closes in this process."""
    os.environ[_VARIABLE] = " ".join(map(str, contexts))


def close(role: Role) -> None:
    """Close the contexts of earlier chiefs on all ps and workers; a task that does not answer is left alone.

    Args:
      role: Role of this process, a chief.
    """
    for context in map(int, os.environ.get(_VARIABLE, "").split()):
        for address in (*role.cluster["ps"], *role.cluster["worker"]):
            if not close_context(address, context, _SECONDS):
                logging.info("the task at %s did not close the context of an earlier chief", address)
