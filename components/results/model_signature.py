"""Signs pushed versions in the format of OpenSSF Model Signing. The signature is `model.sig` in the version's folder.

The signature is asymmetric: the key that verifies a version cannot sign it. It covers all files of the version,
including the manifest. Other tools can verify it, for example
`model_signing verify key VERSION --signature VERSION/model.sig --public_key KEY`.

The package model-signing is an optional extra. It is imported only if a key is configured.
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
"""Default environment variable with the path of the private key, which signs versions."""
PUBLIC_KEY_ENVIRONMENT = "TFX_PIPELINE_PUBLIC_KEY_FILE"
"""Default environment variable with the path of the public key, which verifies versions."""


def key_file(environment: Mapping[str, str], name: str = PUBLIC_KEY_ENVIRONMENT) -> Path | None:
    """Return the PEM file of an elliptic-curve key that an environment variable names.

    Args:
      environment: Environment variables, such as os.environ.
      name: Name of the variable that contains the path of the file.

    Returns:
      The path of the file. None if the variable is not set.

    Raises:
      InputError: The file does not exist, or the package model-signing is not installed. These are errors because
        otherwise a mistake would silently turn signatures off.
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
    """Write the signature of a version to model.sig, and wait until it is on the disk.

    Args:
      folder: Folder of the complete version, with its manifest. It may still have a temporary name.
      private_key: PEM file of the private key, see `key_file`. It must not have a password.

    Raises:
      InputError: The file does not contain an elliptic-curve key without a password.
    """
    from model_signing import signing

    path = Path(folder, MODEL_SIGNATURE)
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    # Other kinds of keys, such as RSA keys, cause an AttributeError because they do not have a curve.
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{private_key}: expected a private key on an elliptic curve, without a password: {error}",
            "make one: openssl ecparam -name prime256v1 -genkey -noout -out KEY",
        ) from error
    config.set_hashing_config(_all_files_but(path)).sign(folder, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def verify(folder: str | Path, public_key: Path) -> None:
    """Check that model.sig matches the current files and was created with the private key of a key pair.

    Args:
      folder: Folder of the version.
      public_key: PEM file of the public key of the pair.

    Raises:
      InputError: The version does not have a model.sig, or it does not match the key or a file.
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
    # Catch exceptions of any type. The file may have any content, and if the library cannot parse it, it is not a valid
    # signature either.
    except Exception as error:
        raise InputError(
            f"{path} does not match the key or the files: {error}",
            "push the model again, or verify with the public key of the one it was signed with",
        ) from error


def _all_files_but(path: Path) -> Any:
    from model_signing import hashing

    return hashing.Config().set_ignored_paths(paths=[path], ignore_git_paths=False)
