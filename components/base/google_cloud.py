"""Google Cloud's client libraries, imported without their warnings, and the conversion of their errors."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from components.base.errors import InputError, MachineError


def exceptions() -> Any:
    """Return the module `google.api_core.exceptions`, with the errors that services return."""
    with _without_warnings():
        from google.api_core import exceptions

    return exceptions


def storage_client() -> Any:
    """Return a client for Cloud Storage, or for the emulator at STORAGE_EMULATOR_HOST."""
    with _without_warnings():
        from google.cloud import storage

    return storage.Client()


def bigquery_client(project: str) -> Any:
    """Return a client for BigQuery, or for the emulator at BIGQUERY_EMULATOR_HOST.

    Args:
      project: Google Cloud project in which jobs run.
    """
    with _without_warnings():
        from google.cloud import bigquery

    return bigquery.Client(project=project)


@contextlib.contextmanager
def errors(what: str) -> Iterator[None]:
    """Convert the errors of Google's clients to errors of this project. PreconditionFailed passes through.

    Args:
      what: Name of the resource that is read or written, such as a URL.

    Raises:
      InputError: Credentials are missing or not sufficient, the bucket, project or dataset does not exist, or the URL
        of an emulator is wrong.
      MachineError: The service failed or did not answer.
    """
    refused = exceptions()
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema, RequestException

    try:
        yield
    except refused.PreconditionFailed:
        raise
    except DefaultCredentialsError as error:
        raise InputError(
            f"{what}: expected credentials of Google Cloud, found none: {_text(error)}",
            "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
        ) from error
    except (refused.Forbidden, refused.Unauthorized) as error:
        raise InputError(f"{what}: access is denied: {_text(error)}", "give your account the missing role") from error
    except refused.NotFound as error:
        raise InputError(f"{what} does not exist: {_text(error)}", "create it, or correct the name") from error
    except refused.ClientError as error:
        raise InputError(f"{what}: the request was refused: {_text(error)}", "correct what is named there") from error
    except (InvalidSchema, InvalidURL, MissingSchema) as error:
        raise InputError(
            f"{what}: expected the URL of a server: {_text(error)}",
            "correct STORAGE_EMULATOR_HOST or BIGQUERY_EMULATOR_HOST",
        ) from error
    except (refused.GoogleAPIError, GoogleAuthError, RequestException) as error:
        raise MachineError(f"{what} cannot be reached: {_text(error)}", "repeat the command") from error


def _text(error: Exception) -> str:
    return str(getattr(error, "message", None) or error).strip().splitlines()[0]


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    # Google's clients warn that later releases will not support Python 3.10.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
