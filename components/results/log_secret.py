"""The secret of a request log, the key of the hashes that the model server writes and the monitor recomputes."""

from __future__ import annotations

from collections.abc import Mapping

from components.base.errors import InputError

SECRET_ENVIRONMENT = "TFX_PIPELINE_LOG_SECRET"  # noqa: S105 - a name  # pragma: allowlist secret
"""Default environment variable with the secret."""
_LEAST_BYTES = 16


def read_secret(environment: Mapping[str, str], name: str = SECRET_ENVIRONMENT) -> bytes:
    """Return the secret in an environment variable, encoded as UTF-8.

    Args:
      environment: Environment variables, such as os.environ.
      name: Name of the variable.

    Raises:
      InputError: The variable is not set, or the secret is so short that all secrets can be tried.
    """
    secret = environment.get(name, "").encode()
    if len(secret) < _LEAST_BYTES:
        raise InputError(
            f"{name}: expected a secret of at least {_LEAST_BYTES} bytes, received {len(secret)}",
            "set it, for example to the output of `openssl rand -hex 32`, for the server and for the monitor",
        )
    return secret
