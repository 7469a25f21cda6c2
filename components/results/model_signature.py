"""A signature of a pushed version in the format of OpenSSF's model signing: `model.sig`, beside the manifest.

It is asymmetric: who verifies cannot sign, and other tools can verify it, such as
`model_signing verify key VERSION --signature VERSION/model.sig --public_key KEY`. It covers all files of the version,
its manifest included. The package model-signing is an extra, and is imported only where a key is configured.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.base.errors import InputError
from components.results.version_manifest import MODEL_SIGNATURE

PRIVATE_KEY_ENVIRONMENT = "TFX_PIPELINE_PRIVATE_KEY_FILE"  # pragma: allowlist secret
"""The default environment variable of the file that versions are signed with."""
PUBLIC_KEY_ENVIRONMENT = "TFX_PIPELINE_PUBLIC_KEY_FILE"
"""The default environment variable of the file that versions are verified with."""


def key_file(environment: Mapping[str, str], name: str = PUBLIC_KEY_ENVIRONMENT) -> Path | None:
    """Return the PEM file of a key on an elliptic curve, or None if the variable is not set.

    Args:
      environment: Such as os.environ.
      name: The variable, which has the path of the file.

    Raises:
      InputError: The variable names no file, or the package model-signing is not installed. Neither may turn
        signatures off.
    """
    value = environment.get(name)
    if value is None:
        return None
    if not Path(value).is_file():
        raise InputError(f"{name}: expected the PEM file of a key, received {value!r}", f"name a file, or unset {name}")
    if importlib.util.find_spec("model_signing") is None:
        raise InputError(
            f"{name}: expected the package model-signing, which is not installed",
            "install the extra signing: .venv/bin/python -m pip install -r requirements-signing.txt",
        )
    return Path(value).absolute()


def sign(folder: str | Path, private_key: Path) -> None:
    """Write model.sig, and wait until it is on the disk.

    Args:
      folder: The complete version, with its manifest; its name may still be a temporary one.
      private_key: See `key_file`; without a password.

    Raises:
      InputError: The file is not such a key.
    """
    from model_signing import signing

    path = Path(folder, MODEL_SIGNATURE)
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    # AttributeError: a key of another kind, such as RSA, has no curve.
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{private_key}: expected a private key on an elliptic curve, without a password: {error}",
            "make one: openssl ecparam -name prime256v1 -genkey -noout -out KEY",
        ) from error
    config.set_hashing_config(_all_files_but(path)).sign(folder, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def verify(folder: str | Path, public_key: Path) -> None:
    """Check that model.sig was made with the private key for this public key, from the files that are there now.

    Raises:
      InputError: There is no model.sig, or it does not match the key or a file.
    """
    from model_signing import verifying

    path = Path(folder, MODEL_SIGNATURE)
    if not path.is_file():
        raise InputError(
            f"{folder}: expected a {MODEL_SIGNATURE}, found none", f"push the model with {PRIVATE_KEY_ENVIRONMENT} set"
        )
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
        config.set_hashing_config(_all_files_but(path)).verify(folder, path)
    # Of any type: the file can have any content, and what its reader does not expect is no valid signature either.
    except Exception as error:
        raise InputError(
            f"{path} does not match the key or the files: {error}",
            "push the model again, or verify with the public key of the one it was signed with",
        ) from error


def _all_files_but(path: Path) -> Any:
    from model_signing import hashing

    return hashing.Config().set_ignored_paths(paths=[path], ignore_git_paths=False)
