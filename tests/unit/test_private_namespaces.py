"""The namespaces of the tests' processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, subprocess, sys
from tests.support.servers import private_namespaces

if not private_namespaces.enter():
    os._exit(77)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", sys.argv[1]], check=True)
print(sys.argv[1] in open("/proc/self/mounts").read(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting takes root")
def test_mount_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    if process.returncode == 77:
        pytest.skip("this container does not permit new namespaces")
    assert (process.returncode, process.stdout) == (0, "True\n"), process.stderr
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
