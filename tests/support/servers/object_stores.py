"""Real servers of object stores on this machine, each with an empty bucket.

moto comes with `make programs`; fake-gcs-server and Azurite with `make stores`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from components.base import google_cloud, object_store
from tests.support.programs import programs
from tests.support.runs.command import ROOT
from tests.support.servers.balancer import free_address

_MADE = ROOT / ".cache" / "stores"
_EXTRAS = [ROOT / ".cache" / name for name in ("s3", "azure")]
KEY, OTHER_KEY = (base64.b64encode(text).decode() for text in (b"not a secret", b"another text"))
"""The key of the server's account, and another one."""
_PATIENCE_SECONDS = 60
"""No test waits for this: it only keeps one that hangs from holding up all the others."""

MOTO = pytest.param("moto", marks=[pytest.mark.needs("moto_server", "jp.py")])
"""The server that `make test-rest` uses."""
OTHERS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(not (_MADE / program).exists(), reason=f"no {name}: `make stores` makes it"),
        ],
    )
    for name, program in (
        ("fake-gcs-server", "bin/fake-gcs-server"),
        ("azurite", "node_modules/.bin/azurite-blob"),
    )
]
WITH_KEYS = [server for server in OTHERS if server.values[0] != "fake-gcs-server"]
"""The servers that verify the signatures of requests."""
SLOW_MOTO = pytest.param("moto", marks=[pytest.mark.slow, *MOTO.marks])
SERVERS = [MOTO, *OTHERS]
"""All servers, as parameters of a test."""


@dataclass(frozen=True)
class ObjectStore:
    """A running server.

    Attributes:
      kind: its name in SERVERS.
      url: of an empty bucket or container.
      environment: with which the clients of the project find it.
    """

    kind: str
    url: str
    environment: Mapping[str, str]

    def make_bucket(self, name: str) -> None:
        """Create a bucket or container."""
        if self.url.startswith("gs://"):
            google_cloud.storage_client().create_bucket(name)
        else:
            object_store.file_system(self.url).mkdir(name)

    def names(self, prefix: str) -> set[str]:
        """Return the names of the objects below a prefix, relative to it."""
        if self.url.startswith("gs://"):
            names = [blob.name for blob in google_cloud.storage_client().list_blobs("rides", prefix=prefix)]
        else:
            paths = object_store.file_system(self.url).find(f"rides/{prefix}")
            names = [path.removeprefix("rides/") for path in paths]
        return {name.removeprefix(prefix) for name in names}

    def upload(self, name: str, file: Path) -> None:
        """Copy a file into the bucket."""
        if self.url.startswith("gs://"):
            google_cloud.storage_client().bucket("rides").blob(name).upload_from_filename(str(file))
        else:
            object_store.file_system(self.url).pipe_file(f"rides/{name}", file.read_bytes())


@contextlib.contextmanager
def serve(kind: str, folder: Path) -> Iterator[ObjectStore]:
    """Start a server and create the bucket `rides`; within the block, clients of this process find the server, too.

    Args:
      kind: one of SERVERS.
      folder: for the server's files.
    """
    address = free_address()
    command, scheme, variables = _COMMANDS[kind](address, folder)
    for extra in map(str, _EXTRAS):
        # As if the extras were installed.
        if extra not in sys.path:
            sys.path.insert(0, extra)
    paths = os.pathsep.join([*map(str, _EXTRAS), str(ROOT)])
    environment = {**variables, "PYTHONPATH": paths, "NO_PROXY": "127.0.0.1"}
    with (folder / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables}, cwd=folder)
    try:
        _wait_for(address, process, folder / f"{kind}.log")
        with use(environment):
            store = ObjectStore(kind, f"{scheme}://rides", environment)
            store.make_bucket("rides")
            yield store
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def use(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for new clients of this process, which forget what an earlier test has set."""
    with mock.patch.dict(os.environ, environment):
        object_store._file_systems.clear()
        try:
            yield
        finally:
            object_store._file_systems.clear()


def _moto(address: str, folder: Path) -> tuple[list[str], str, dict[str, str]]:
    host, port = address.split(":")
    return [programs.find("moto_server"), "--host", host, "--port", port], "s3", _aws(address)


def _aws(address: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "an-account",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": f"http://{address}",
        # No file of this user, and no request to the metadata server of EC2.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _fake_gcs_server(address: str, folder: Path) -> tuple[list[str], str, dict[str, str]]:
    host, port = address.split(":")
    options = ["-scheme", "http", "-host", host, "-port", port, "-backend", "memory"]
    command = [str(_MADE / "bin/fake-gcs-server"), *options, "-external-url", f"http://{address}"]
    return command, "gs", {"STORAGE_EMULATOR_HOST": f"http://{address}"}


def _azurite(address: str, folder: Path) -> tuple[list[str], str, dict[str, str]]:
    host, port = address.split(":")
    connection = ("DefaultEndpointsProtocol=http", "AccountName=rider", f"AccountKey={KEY}")
    options = ["--blobHost", host, "--blobPort", port, "--location", str(folder / "azurite"), "--disableTelemetry"]
    return (
        [str(_MADE / "node_modules/.bin/azurite-blob"), *options, "--skipApiVersionCheck"],
        "az",
        {
            "AZURITE_ACCOUNTS": f"rider:{KEY}",
            "AZURE_STORAGE_CONNECTION_STRING": ";".join([*connection, f"BlobEndpoint=http://{address}/rider"]),
        },
    )


_COMMANDS = {"moto": _moto, "fake-gcs-server": _fake_gcs_server, "azurite": _azurite}


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    soon = time.monotonic() + _PATIENCE_SECONDS
    while True:
        connection = http.client.HTTPConnection(address, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse()
            return
        except OSError:
            pass
        finally:
            connection.close()
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < soon, log.read_text()
        time.sleep(0.05)
