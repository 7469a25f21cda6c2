"""A disk that fills up while a node writes: one headline, one remedy, and a run that can be resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting a small disk takes root")
def test_full_disk_is_reported(tmp_path: Path):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount name spaces here, as in a chroot")
    disk = tmp_path / "disk"
    disk.mkdir()
    # The mount is in a new mount namespace, and ends with the program. 24 MB hold the store and the logs.
    script = """
        mount -t tmpfs -o size=24m tmpfs "$1" || exit 77
        mkdir "$1/artifacts"
        echo "fill $1/artifacts/Actor/big" > "$1/Actor.script"
        "$2" "$3/runs/toy_runs.py" "$1" chain '{"screen": "json"}'
        echo "exit $?"
    """
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(disk), sys.executable, str(SUPPORT)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 77:
        pytest.skip("no right to mount here")
    message, exit_line = ended.stdout.splitlines()
    result = json.loads(message)
    assert exit_line == "exit 1", ended.stderr
    assert result["state"] == "failed"
    assert result["nodes"]["Actor"]["state"] == "failed"
    assert result["error"]["headline"].startswith("the disk is full")
    assert "--output" in result["error"]["remedy"]
    assert ended.stderr == ""
