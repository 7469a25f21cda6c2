"""Credentials of a service account for Google's clients; its key is made here, and opens nothing."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def write(folder: Path, token_uri: str) -> Path:
    """Write the file that GOOGLE_APPLICATION_CREDENTIALS names.

    Args:
      folder: where to.
      token_uri: who gives a token for it.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    content = {
        "type": "service_account",
        "project_id": "mine",
        "private_key_id": "1",
        "private_key": text,
        "client_email": "me@mine.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    file = folder / "credentials.json"
    file.write_text(json.dumps(content))
    return file


TOKEN = {"access_token": "a token", "expires_in": 3600, "token_type": "Bearer"}
"""What is answered at the token_uri."""
