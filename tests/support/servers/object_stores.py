"""Real servers of object stores on this machine, each with an empty bucket.

moto comes with `make programs`; SeaweedFS, fake-gcs-server and Azurite with `make stores`.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from components.base import google_cloud, object_store
from tests.support.programs import programs
from tests.support.runs.command import ROOT
from tests.support.servers.balancer import free_address

_MADE = ROOT / ".cache" / "stores"
AZURITE_PROGRAM = _MADE / "node_modules/.bin/azurite-blob"
_EXTRAS = [ROOT / ".cache" / name for name in ("s3", "azure")]
KEY, OTHER_KEY = (base64.b64encode(text).decode() for text in (b"not a secret", b"another text"))
"""The key of the server's account, and another one."""
ACCOUNT = "an-account"
ROLES = "arn:aws:iam::000000000000:role"
"""Prefix of the names of SeaweedFS's roles `writer` and `reader`."""
_POLICIES = "2012-10-17"
"""Version of the language of AWS's policies."""
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
        ("seaweedfs", "bin/weed"),
        ("fake-gcs-server", "bin/fake-gcs-server"),
        ("azurite", "node_modules/.bin/azurite-blob"),
    )
]
SEAWEEDFS = OTHERS[0]
"""The server with several processes, each of which can be lost."""
AZURITE = OTHERS[2]
WITH_KEYS = [server for server in OTHERS if server.values[0] != "fake-gcs-server"]
"""The servers that verify the signatures of requests."""
SLOW_MOTO = pytest.param("moto", marks=[pytest.mark.slow, *MOTO.marks])
SERVERS = [MOTO, *OTHERS]
"""All servers, as parameters of a test."""


class Process(NamedTuple):
    """A process of a server.

    Attributes:
      command: The command line.
      address: At which it answers HTTP.
    """

    command: Sequence[str]
    address: str


class Server:
    """The processes of a server, which can be started again with the same addresses and files.

    Args:
      processes: Name → process, in the order in which they need each other.
      environment: Environment variables of the processes.
      folder: The processes' working directory, which contains their logs.
    """

    def __init__(self, processes: Mapping[str, Process], environment: Mapping[str, str], folder: Path) -> None:
        self._processes, self._environment, self._folder = processes, {**os.environ, **environment}, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the processes, and wait until they answer requests."""
        for name, process in self._processes.items():
            log = self._folder / f"{name}.log"
            with log.open("ab") as output:
                running = subprocess.Popen(
                    process.command, stdout=output, stderr=output, env=self._environment, cwd=self._folder
                )
            self._running[name] = running
            soon = time.monotonic() + _PATIENCE_SECONDS
            while not _answers(process.address):
                assert running.poll() is None, log.read_text()
                assert time.monotonic() < soon, log.read_text()
                time.sleep(0.05)

    def kill(self, *names: str) -> None:
        """Kill processes; by default, all that were started."""
        for name in names or self._running:
            self._running[name].kill()
            self._running[name].wait()


@dataclass(frozen=True)
class ObjectStore:
    """A running server.

    Attributes:
      kind: its name in SERVERS.
      url: of an empty bucket or container.
      environment: with which the clients of the project find it.
      server: its processes.
    """

    kind: str
    url: str
    environment: Mapping[str, str]
    server: Server

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
    processes, scheme, variables = _PARTS[kind](address, folder)
    for extra in map(str, _EXTRAS):
        # As if the extras were installed.
        if extra not in sys.path:
            sys.path.insert(0, extra)
    paths = os.pathsep.join([*map(str, _EXTRAS), str(ROOT)])
    environment = {**variables, "PYTHONPATH": paths, "NO_PROXY": "127.0.0.1"}
    server = Server(processes, variables, folder)
    try:
        server.start()
        with use(environment):
            store = ObjectStore(kind, f"{scheme}://rides", environment, server)
            store.make_bucket("rides")
            yield store
    finally:
        server.kill()


@contextlib.contextmanager
def use(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for new clients of this process, which forget what an earlier test has set."""
    with mock.patch.dict(os.environ, environment):
        object_store._file_systems.clear()
        try:
            yield
        finally:
            object_store._file_systems.clear()


_Parts = tuple[dict[str, Process], str, dict[str, str]]
"""The processes of a server, its scheme, and the environment of its processes and clients."""


def _moto(address: str, folder: Path) -> _Parts:
    host, port = address.split(":")
    command = [programs.find("moto_server"), "--host", host, "--port", port]
    return {"moto": Process(command, address)}, "s3", _aws(address)


def _aws(address: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": f"http://{address}",
        # No file of this user, and no request to the metadata server of EC2.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _seaweedfs(address: str, folder: Path) -> _Parts:
    """Return a master, two volume servers that both have each block, a filer with the files' names, and the S3 API."""
    master, *volumes, filer, api = [_Endpoint.free() for _ in range(5)]
    api = api._replace(port=int(address.split(":")[1]))
    (folder / "access.json").write_text(json.dumps(_create_access()))
    parts = {
        # 001: one more copy of a block on another server. A single master need not wait for an election.
        "master": (master, "-defaultReplication=001 -peers=none -electionTimeout=1s -telemetry=false -mdir=."),
        **{f"volume{n}": (volumes[n], f"-master={master} -dir=volume{n} -max=20") for n in range(len(volumes))},
        "filer": (filer, f"-master={master} -defaultStoreDir=. -localSocket={folder}/filer.sock"),
        "s3": (
            api,
            f"-filer={filer} -config=access.json -iam.config=access.json -localSocket={folder}/s3.sock "
            "-port.iceberg=0 -port.lance=0",
        ),
    }
    processes = {}
    for name, (endpoint, options) in parts.items():
        (folder / name).mkdir()
        command = [str(_MADE / "bin/weed"), "-logtostderr", name.rstrip("01"), *endpoint.options, *options.split()]
        processes[name] = Process(command, f"127.0.0.1:{endpoint.port}")
    return processes, "s3", _aws(address)


def _create_access() -> dict[str, Any]:
    """Return the configuration of an account that may assume the roles writer and reader."""
    actions = {"writer": ["s3:*"], "reader": ["s3:Get*", "s3:List*"]}
    trust = {"Effect": "Allow", "Principal": "*", "Action": "sts:AssumeRole"}
    credentials = [{"accessKey": ACCOUNT, "secretKey": KEY}]
    return {
        "identities": [
            {"name": "rider", "credentials": credentials, "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
        ],
        "sts": {"tokenDuration": "1h", "maxSessionLength": "1h", "issuer": "tests", "signingKey": KEY * 4},
        "roles": [
            {
                "roleName": role,
                "roleArn": f"{ROLES}/{role}",
                "trustPolicy": {"Version": _POLICIES, "Statement": [trust]},
                "attachedPolicies": [role],
            }
            for role in actions
        ],
        "policies": [
            {
                "name": role,
                "document": {
                    "Version": _POLICIES,
                    "Statement": [{"Effect": "Allow", "Action": allowed, "Resource": "*"}],
                },
            }
            for role, allowed in actions.items()
        ],
    }


class _Endpoint(NamedTuple):
    """Ports of a process of SeaweedFS on the loopback interface; as text, in the form of its options."""

    port: int
    grpc: int

    @classmethod
    def free(cls) -> _Endpoint:
        return cls(*(int(free_address().split(":")[1]) for _ in range(2)))

    @property
    def options(self) -> list[str]:
        return ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-port={self.port}", f"-port.grpc={self.grpc}"]

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}.{self.grpc}"


def _fake_gcs_server(address: str, folder: Path) -> _Parts:
    host, port = address.split(":")
    options = ["-scheme", "http", "-host", host, "-port", port, "-backend", "memory"]
    command = [str(_MADE / "bin/fake-gcs-server"), *options, "-external-url", f"http://{address}"]
    return {"fake-gcs-server": Process(command, address)}, "gs", {"STORAGE_EMULATOR_HOST": f"http://{address}"}


def _azurite(address: str, folder: Path) -> _Parts:
    host, port = address.split(":")
    connection = ("DefaultEndpointsProtocol=http", "AccountName=rider", f"AccountKey={KEY}")
    options = ["--blobHost", host, "--blobPort", port, "--location", "azurite", "--disableTelemetry"]
    command = [str(AZURITE_PROGRAM), *options, "--skipApiVersionCheck"]
    return (
        {"azurite": Process(command, address)},
        "az",
        {
            "AZURITE_ACCOUNTS": f"rider:{KEY}",
            "AZURE_STORAGE_CONNECTION_STRING": ";".join([*connection, f"BlobEndpoint=http://{address}/rider"]),
        },
    )


_PARTS = {"moto": _moto, "seaweedfs": _seaweedfs, "fake-gcs-server": _fake_gcs_server, "azurite": _azurite}


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse()
        return True
    except http.client.HTTPException:
        # It expects HTTPS.
        return True
    except OSError:
        return False
    finally:
        connection.close()
