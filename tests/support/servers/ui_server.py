"""Starts `runner.py runs serve`, and runs for it to look at."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.support.runs.command import ROOT, SUPPORT


class Going:
    """A run in a separate process, which makes one step per line on its stdin.

    Args:
      folder: Folder of the pipeline, with `metadata.db` and `logs`.

    Attributes:
      run: its id.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "programs" / "unfinished_run.py")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.run = self._send(str(folder))

    def step(self, line: str) -> None:
        """Make the run execute a step, and wait for it."""
        assert self._send(line) == "done"

    def end(self) -> None:
        """End the process, whether the run has ended or not."""
        self._process.kill()
        self._process.communicate()

    def _send(self, line: str) -> str:
        ours, theirs = self._process.stdin, self._process.stdout
        assert ours is not None
        assert theirs is not None
        ours.write(f"{line}\n")
        ours.flush()
        return theirs.readline().strip()


@contextlib.contextmanager
def going(folder: Path) -> Iterator[Going]:
    """Yield a run in progress, which ends at the latest with the block."""
    going = Going(folder)
    try:
        yield going
    finally:
        going.end()


@contextlib.contextmanager
def serve_pages(store: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the pages of a store, which need not exist yet; yield their address and the server process."""
    process = subprocess.Popen(
        [sys.executable, "runner.py", "runs", "serve", "--store", str(store), "--port", "0", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield _address(process.stdout), process
    finally:
        process.kill()
        process.communicate()


def fetch_page(address: str, path: str = "") -> str:
    """Return the content of a page; fail if the page does not exist."""
    connection = http.client.HTTPConnection(address.split("/")[2])
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    assert answer.status == 200, body
    return body


def _address(output: IO[str] | None) -> str:
    assert output is not None
    for line in output:
        if url := re.search(r"http://\S+", line):
            return url[0]
    raise AssertionError("it printed no address")
