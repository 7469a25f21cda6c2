"""A fake of Google Cloud Storage at its HTTP boundary, with generations and their preconditions.

TensorFlow's client knows one address, https://….googleapis.com, so `serve` is its configured proxy; the proxy opens the
connection itself, with a certificate that the client is configured to trust. Google's own client also accepts
the address of an emulator: `emulate`.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import email
import json
import re
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.fakes import google_credentials
from tests.support.fakes.fake_service import JsonHandler, serving

HOSTS = ("www.googleapis.com", "storage.googleapis.com", "iamcredentials.googleapis.com")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass
class Bucket:
    """All objects of a bucket, and a log of their writes and deletions.

    Attributes:
      objects: name → content.
      log: `write NAME` and `delete NAME`, as they came.
      refused: Suffixes of names whose next write is refused, once each.
      lost: Suffixes of names whose next write succeeds but is answered by an error, once each.
      uploads: name → the chunks that have come of an upload that is not complete.
      awaited: end of a name → what is called, once, when such an object has been written.
      generations: name → generation of the object; 1 if a test has stored it here.
      missing: names of buckets that do not exist.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)
    awaited: dict[str, Callable[[], object]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def generation(self, name: str) -> int:
        """Return the generation of an object; 0: there is none."""
        return self.generations.get(name, 1) if name in self.objects else 0

    def read(self, name: str) -> tuple[bytes | None, int]:
        """Return the content of an object, or None, and its generation."""
        with self._lock:
            return self.objects.get(name), self.generation(name)

    def store(self, name: str, content: bytes, expected: str | None = None) -> bool:
        """Store an object, unless it has another generation than expected; says whether it did."""
        with self._lock:
            if expected is not None and self.generation(name) != int(expected):
                return False
            self.objects[name] = content
            self.generations[name] = max(self.generations.values(), default=1) + 1
            self.log.append(f"write {name}")
        # Not under the lock: what waits may use the bucket itself.
        for end in [ending for ending in self.awaited if name.endswith(ending)]:
            self.awaited.pop(end)()
        return True

    def delete(self, name: str, expected: str | None = None) -> bool:
        """Delete an object that exists, unless it has another generation than expected; says whether it did."""
        with self._lock:
            if expected is not None and self.generation(name) != int(expected):
                return False
            del self.objects[name]
            self.log.append(f"delete {name}")
        return True

    def files(self) -> dict[str, bytes]:
        """Return the objects that stand for files; those that stand for folders end with a slash."""
        return {name: content for name, content in self.objects.items() if not name.endswith("/")}

    def written(self) -> list[str]:
        """Return the names of the written files, in order of writing."""
        names = (line.removeprefix("write ") for line in self.log if line.startswith("write "))
        return [name for name in names if not name.endswith("/")]


@contextlib.contextmanager
def serve(bucket: Bucket, folder: Path) -> Iterator[Mapping[str, str]]:
    """Serve a bucket; yield environment variables with which TensorFlow and Beam find it, under any name.

    Args:
      bucket: Bucket to serve.
      folder: for the certificate and credentials.
    """
    context = _certificate(folder)
    credentials = google_credentials.write(folder, f"https://{HOSTS[0]}/token")
    with serving(_handler(bucket, context, f"https://{HOSTS[0]}")) as port:
        yield {
            "https_proxy": f"http://127.0.0.1:{port}",
            # gRPC between processes on this machine goes straight.
            "no_proxy": "localhost,127.0.0.1",
            "CURL_CA_BUNDLE": str(folder / "certificate.pem"),
            "REQUESTS_CA_BUNDLE": str(folder / "certificate.pem"),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a token",
            "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
            "GCS_RETRY_CONFIG_MAX_RETRIES": "0",
        }


@contextlib.contextmanager
def emulate(bucket: Bucket) -> Iterator[Mapping[str, str]]:
    """Serve a bucket as an emulator; yield the environment variables with which Google's client finds it."""
    with serving(_handler(bucket)) as port:
        yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"}


def _handler(bucket: Bucket, context: ssl.SSLContext | None = None, address: str = "") -> type[JsonHandler]:
    class Handler(JsonHandler):
        # Disable Nagle's algorithm: the second of an answer's two small packets must not wait for an ACK.
        disable_nagle_algorithm = True

        def do_CONNECT(self) -> None:
            assert context is not None
            self.send_response(200)
            self.end_headers()
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb", -1)
            self.wfile = self.connection.makefile("wb", 0)
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            # The server closes the plain connection; the TLS connection on top of it is closed here.
            self.connection.close()

        def do_GET(self) -> None:
            path, query = self._target()
            match path:
                case ["storage", "v1", "b", _]:
                    self._respond({"kind": "storage#bucket", "location": "US"})
                case ["storage", "v1", "b", _, "storageLayout"]:
                    # TensorFlow 2.21 wants to know whether a folder can be renamed as such.
                    self._respond({"kind": "storage#storageLayout", "hierarchicalNamespace": {"enabled": False}})
                case ["storage", "v1", "b", name, "o"]:
                    self._respond(None if name in bucket.missing else _list(bucket, query))
                case ["download", "storage", "v1", "b", _, "o", name]:
                    self._content(name)
                case ["storage", "v1", "b", _, "o", name]:
                    self._respond(_describe(bucket, name) if name in bucket.objects else None)
                case [_, *parts]:
                    self._content("/".join(parts))

        def do_POST(self) -> None:
            path, query = self._target()
            body = self.body()
            match path:
                case ["token"]:
                    self._respond(google_credentials.TOKEN)
                case ["batch", *_]:
                    self._batch(body)
                case ["storage", *_]:
                    self.answer(*_change(bucket, "POST", path, query))
                case _:
                    self._upload(query, body)

        def do_PUT(self) -> None:
            _, query = self._target()
            name, body = query["name"], self.body()
            there = _RANGE.fullmatch(self.headers.get("Content-Range", ""))
            whole = (bucket.uploads.pop(name, b"") if there and int(there[1]) else b"") + body
            if there and there[3] == "*":
                bucket.uploads[name] = whole
                self.answer(308, b"", {"Range": f"bytes=0-{len(whole) - 1}"})
            else:
                self._store(name, whole, query)

        def do_DELETE(self) -> None:
            path, query = self._target()
            self.answer(*_change(bucket, "DELETE", path, query))

        def _upload(self, query: dict[str, str], body: bytes) -> None:
            """Handle an upload of a whole object, or the start of a chunked upload."""
            name, content = query.get("name", ""), body
            if query["uploadType"] == "multipart":
                payload, content = _parts(self.headers["Content-Type"], body)
                name = json.loads(payload)["name"]
            elif query["uploadType"] == "resumable":
                name = name or json.loads(body)["name"]
            if (end := next(filter(name.endswith, bucket.refused), None)) is not None:
                bucket.refused.remove(end)
                self.answer(403, b"{}")
            elif query["uploadType"] == "resumable":
                session = urllib.parse.urlencode({**query, "name": name})
                base = address or f"http://{self.headers['Host']}"
                self.answer(200, b"", {"Location": f"{base}/session?{session}"})
            else:
                self._store(name, content, query)

        def _batch(self, body: bytes) -> None:
            """Handle several changes in one request."""
            answers = []
            for number, part in enumerate(_parts(self.headers["Content-Type"], body), 1):
                method, target, *_ = part.decode().split(None, 2)
                url = urllib.parse.urlsplit(target)
                query = dict(urllib.parse.parse_qsl(url.query))
                status, content = _change(bucket, method, _path(url.path), query)
                answers.append(
                    f"--b\r\nContent-Type: application/http\r\nContent-ID: <response-a+{number}>\r\n\r\n"
                    f"HTTP/1.1 {status} Done\r\nContent-Type: application/json\r\n\r\n{content.decode()}\r\n"
                )
            payload = ("".join(answers) + "--b--\r\n").encode()
            self.answer(200, payload, {"Content-Type": "multipart/mixed; boundary=b"})

        def _target(self) -> tuple[list[str], dict[str, str]]:
            url = urllib.parse.urlsplit(self.path)
            return _path(url.path), dict(urllib.parse.parse_qsl(url.query))

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return super().body()
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        def _store(self, name: str, content: bytes, query: Mapping[str, str]) -> None:
            if not bucket.store(name, content, query.get("ifGenerationMatch")):
                self.respond({}, 412)
            elif (end := next(filter(name.endswith, bucket.lost), None)) is not None:
                bucket.lost.remove(end)
                self.respond({}, 503)
            else:
                self._respond(_describe(bucket, name))

        def _content(self, name: str) -> None:
            content, generation = bucket.read(name)
            if content is None:
                self.answer(404, b"")
                return
            headers = {"X-Goog-Generation": str(generation)}
            byte_range = self.headers.get("Range")
            if byte_range is None:
                self.answer(200, content, headers)
                return
            last = len(content) - 1
            first, end = (int(number or last) for number in byte_range.removeprefix("bytes=").split("-"))
            part = content[first : min(last, end) + 1]
            # As the real service: a range that begins after the end is an error.
            self.answer(206 if part else 416, part, headers)

        def _respond(self, payload: Any) -> None:
            self.respond(payload or {}, 404 if payload is None else 200)

    return Handler


def _describe(bucket: Bucket, name: str) -> dict[str, str]:
    content, generation = bucket.read(name)
    content = content or b""
    checksum = base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
    at = "2026-11-21T16:24:01.000Z"
    described = {"name": name, "size": str(len(content)), "generation": str(generation)}
    return {**described, "updated": at, "crc32c": checksum}


def _path(url: str) -> list[str]:
    return [urllib.parse.unquote(part) for part in url.strip("/").split("/")]


def _change(bucket: Bucket, method: str, path: list[str], query: Mapping[str, str]) -> tuple[int, bytes]:
    """Delete or copy an object; return the status and the content of the answer."""
    match method, path:
        case "DELETE", [*_, "o", name] if name in bucket.objects:
            return (204, b"") if bucket.delete(name, query.get("ifGenerationMatch")) else (412, b"{}")
        case "POST", [*_, source, ("copyTo" | "rewriteTo") as how, "b", _, "o", name] if source in bucket.objects:
            bucket.store(name, bucket.objects[source])
            described = _describe(bucket, name)
            return 200, json.dumps({"done": True, "resource": described} if how == "rewriteTo" else described).encode()
    return 404, b"{}"


def _parts(kind: str, body: bytes) -> list[bytes]:
    """Return the contents of a message in several parts."""
    whole = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    return [part.get_payload(decode=True) for part in whole.get_payload()]


def _list(bucket: Bucket, query: Mapping[str, str]) -> dict[str, Any]:
    items, prefixes = [], set()
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
    for name in sorted(bucket.objects):
        if not name.startswith(prefix):
            continue
        inside, separator, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else (name, "", "")
        if separator:
            prefixes.add(f"{prefix}{inside}{delimiter}")
        else:
            items.append(_describe(bucket, name))
    return {"items": items, "prefixes": sorted(prefixes)}


_USES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _certificate(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOSTS[0])])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # Python 3.13 requires the key usage of an authority.
        .add_extension(_USES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
