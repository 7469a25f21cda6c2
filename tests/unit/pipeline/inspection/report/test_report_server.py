"""Tests for the HTTP server of the pages about runs: accepted requests, responses and errors."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.base.errors import InputError, MachineError
from pipeline.inspection.report.live_pages import Pages
from pipeline.inspection.report.server import HOST, Server
from tests.support.runs.command import light_command
from tests.support.runs.stored_history import History, write_history
from tests.support.servers.ui_server import fetch_page, serve_pages


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return a store with three runs of one pipeline."""
    return write_history(tmp_path_factory.mktemp("history"))


@pytest.fixture(scope="module")
def server(history: History) -> Iterator[Server]:
    with Server(Pages(history.location, history.logs, None), 0) as running_server:
        thread = threading.Thread(target=running_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running_server
        running_server.shutdown()
        thread.join()


def fetch(server: Server, path: str = "/", method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*server.server_address)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


def test_server_listens_on_loopback_only(server: Server):
    assert server.server_address[0] == HOST == "127.0.0.1"


def test_page_may_only_load_its_own_style_script_and_data(server: Server):
    response = fetch(server)
    assert response.status == 200
    policy = dict(directive.split(" ", 1) for directive in response.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-")
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"


def test_current_version_is_not_sent_again(server: Server):
    first = fetch(server, "/run/r1/")
    again = fetch(server, "/run/r1/", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, b"")  # type: ignore[attr-defined]
    assert fetch(server, "/run/r1/", If_None_Match='"other"').status == 200


def test_response_to_head_does_not_have_a_body(server: Server):
    head, whole = fetch(server, method="HEAD"), fetch(server)
    assert head.body == b""  # type: ignore[attr-defined]
    assert head.headers["Content-Length"] == str(len(whole.body))  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "WHATEVER"])
def test_write_methods_are_rejected(server: Server, method: str):
    response = fetch(server, method=method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8600", "localhost.evil.example", "127.0.0.1.evil.example", ""]
)
def test_other_host_names_are_rejected(server: Server, host: str):
    response = fetch(server, Host=host)
    assert response.status == 421
    assert b"r1" not in response.body  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:9999"])
def test_loopback_host_names_are_accepted(server: Server, host: str):
    assert fetch(server, Host=host).status == 200


def test_query_string_is_ignored(server: Server):
    assert fetch(server, "/run/r1/?a=/../b").status == 200


def test_internal_error_is_printed_on_the_terminal_only(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(server.pages, "respond", lambda path, client_tag: 1 / 0)
    response = fetch(server)
    assert response.status == 500
    assert b"Zero" not in response.body  # type: ignore[attr-defined]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_disconnected_client_is_not_an_error(server: Server, capfd: pytest.CaptureFixture[str]):
    for _ in range(5):
        with socket.create_connection(server.server_address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert fetch(server).status == 200
    assert capfd.readouterr().err == ""


def test_occupied_port_is_an_error(server: Server):
    with pytest.raises(MachineError, match="another program listens on it"):
        Server(server.pages, server.server_address[1])


@pytest.mark.parametrize("port", [-1, 65536])
def test_invalid_port_is_an_error(history: History, port: int):
    with pytest.raises(InputError, match="expected 0 to 65535"):
        Server(Pages(history.location, history.logs, None), port)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_verb_serves_until_it_receives_a_signal(tmp_path: Path, ending: signal.Signals):
    with serve_pages(tmp_path / "metadata.db") as (address, process):
        assert "No run yet." in fetch_page(address)
        os.kill(process.pid, ending)
        _, err = process.communicate()
        assert (process.returncode, err) == (0, "")


def test_verb_rejects_a_file_that_is_not_a_store(tmp_path: Path):
    (tmp_path / "metadata.db").write_text("no store")
    process = light_command("runs", "serve", "--store", str(tmp_path / "metadata.db"), "--port", "0")
    assert process.exit_code == 1
    assert "cannot be opened" in process.err


def test_missing_config_is_an_error(tmp_path: Path):
    process = light_command("runs", "serve", "--config", str(tmp_path / "none.yaml"))
    assert process.exit_code == 2
    assert "none.yaml" in process.err
