"""Published clients of the Open Inference Protocol get right answers from the local server.

`make clients` installs them in an environment of their own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.runs.command import SUPPORT
from tests.support.servers.serving import Server, line, serving

PYTHON = Path(__file__).parents[2] / ".cache/inference_clients/bin/python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no inference clients: `make clients` installs them"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve two versions of `line`."""
    folder = tmp_path_factory.mktemp("server")
    for number in (1, 2):
        line(folder / "line", number, slope=number + 1.0)
    config = f'config {{ name: "line" base_path: "{folder / "line"}" model_version_policy {{ all {{ }} }} }}'
    (folder / "models.config").write_text(f"model_config_list {{ {config} }}")
    with serving(folder, f"--model_config_file={folder / 'models.config'}", "--allow_unverified") as server:
        server.wait("line", 2)
        yield server


def run_client(program: str, *arguments: str) -> Any:
    command = [PYTHON, SUPPORT / "programs" / program, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_triton_client(server: Server, protocol: str) -> None:
    port = server.rest if protocol == "http" else server.rpc
    answers = run_client("triton_client.py", protocol, f"127.0.0.1:{port}")
    assert answers["health"] == [True, True]
    assert answers["ready"] == [True, True, False]
    assert answers["server"]["version"] == tf.__version__
    assert answers["model"]["versions"] == ["2", "1"]
    assert [(tensor["name"], tensor["datatype"]) for tensor in answers["model"]["inputs"]] == [
        ("name", "BYTES"), ("x", "FP32")
    ]  # fmt: skip
    assert (answers["numbers"], answers["dtype"]) == ([4.0, 8.5], "float32")
    assert bytes(answers["strings"][0]).decode() == "Ä"
    assert bytes(answers["strings"][1]) == b"\xff"
    assert answers["version 1"] == [[3.0, 6.0], None]
    assert answers["pairs"] == [3, 2**40]
    if protocol == "http":
        assert answers["gzip"] == answers["deflate"] == [4.0, 8.5]
        assert answers["json"] == ["hello a", "hello b"]
    status, message = answers["error"]
    assert status == ("400" if protocol == "http" else "StatusCode.INVALID_ARGUMENT")
    assert "input 'x': expected the datatype FP32, received FP64" in message


def test_kserve_client(server: Server) -> None:
    answers = run_client("kserve_client.py", f"127.0.0.1:{server.rest}", f"127.0.0.1:{server.rpc}")
    assert answers["REST health"] == answers["gRPC health"] == [True, True]
    assert answers["REST ready"] == [True]
    assert answers["gRPC ready"] == [True, False]
    expected = {"y": [3.0, 6.0], "greeting": ["hello a", "hello b"], "name_bytes": ["a", "b"]}
    # The REST client does not send the version of a request, so that the greatest version answers.
    for api, values in (("REST", {**expected, "y": [4.0, 8.5]}), ("gRPC", expected)):
        for binary in (False, True):
            assert answers[f"{api} {binary}"] == values
