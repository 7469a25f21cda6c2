"""Azurite with the host name and the HTTPS of an account in Azure, and the identity service of an App Service.

Both run in the network of the tests alone, and only commands of `Account` find the host name.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.fakes.fake_service import JsonHandler, serving
from tests.support.runs.command import ROOT, Ended, call
from tests.support.servers import object_stores
from tests.support.servers.object_stores import KEY, Process, Server

NAME = "rider"
_HOST = f"{NAME}.blob.core.windows.net"
_RESOURCE = "https://storage.azure.com"
_WITH_HOSTS = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
"""Shell script that runs a command for which another file stands at /etc/hosts."""


@dataclass(frozen=True)
class Account:
    """A storage account with the key `object_stores.KEY`.

    Attributes:
      folder: Folder for files.
      login: Environment variables by which clients find the identity service.
    """

    folder: Path
    login: dict[str, str]

    def run(self, program: str, *arguments: str, **variables: str) -> Ended:
        """Run a Python program that finds the account, with the account's name and other environment variables."""
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": NAME,
            "SSL_CERT_FILE": str(self.folder / "certificate.pem"),
            "PYTHONPATH": f"{ROOT / '.cache' / 'azure'}:{ROOT}",
            **variables,
        }
        command = ["unshare", "--mount", "sh", "-c", _WITH_HOSTS, "sh", str(self.folder / "hosts")]
        return call([*command, sys.executable, "-c", program, *arguments], environment)


@contextlib.contextmanager
def serve(folder: Path, lifetime_seconds: float = 3600) -> Iterator[Account]:
    """Start the account and the identity service.

    Args:
      folder: Folder for files.
      lifetime_seconds: How long a token of the identity service is valid; expired if negative.
    """
    (folder / "hosts").write_text(f"127.0.0.1 localhost {_HOST}\n")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={_HOST}"),
            *("-addext", f"subjectAltName=DNS:{_HOST}", "-keyout", "key.pem", "-out", "certificate.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    # Clients expect port 443. This network has no other processes than those of this test.
    options = ["--blobHost", "127.0.0.1", "--blobPort", "443", "--location", "azurite", "--disableTelemetry"]
    options += ["--skipApiVersionCheck", "--oauth", "basic", "--cert", "certificate.pem", "--key", "key.pem"]
    azurite = Process([str(object_stores.AZURITE_PROGRAM), *options], "127.0.0.1:443")
    server = Server({"azurite": azurite}, {"AZURITE_ACCOUNTS": f"{NAME}:{KEY}"}, folder)

    class IdentityService(JsonHandler):
        def do_GET(self) -> None:
            token = _create_token(int(time.time() + lifetime_seconds))
            details = {"resource": _RESOURCE, "token_type": "Bearer", "expires_on": str(int(time.time()) + 3600)}
            self.respond({"access_token": token, **details})

    try:
        server.start()
        with serving(IdentityService) as port:
            login = {"IDENTITY_ENDPOINT": f"http://127.0.0.1:{port}/token", "IDENTITY_HEADER": "a secret"}
            yield Account(folder, login)
    finally:
        server.kill()


def _create_token(expires: int) -> str:
    """Return a token with the claims that Azurite checks; it does not check the signature."""
    claims = {"aud": _RESOURCE, "iss": "https://sts.windows.net/tests/", "exp": expires}
    parts = ({"alg": "HS256", "typ": "JWT"}, {**claims, "iat": expires - 7200, "nbf": expires - 7200})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*encoded, "c2lnbmF0dXJl"))
