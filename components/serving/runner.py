"""Our local server as a model server of TFX's InfraValidator: a fresh process that imports TensorFlow alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfx.components.infra_validator import error_types
from tfx.components.infra_validator.model_server_runners import base_runner
from tfx.utils import io_utils

_ROOT = Path(__file__).parents[2]
_TICK_SECONDS = 0.05
_GRACE_SECONDS = 10
_TOLD_BYTES = 20_000


class LocalServerRunner(base_runner.BaseModelServerRunner):  # type: ignore[misc]
    """Starts and stops one server.

    Args:
      model_path: `<base path>/<model name>/<version>`.
      model_name: as requests name it.
    """

    def __init__(self, model_path: str, model_name: str) -> None:
        self._name = model_name
        self._folder = tempfile.TemporaryDirectory(prefix="serving-check-")
        self._base = _on_this_disk(model_path, Path(self._folder.name)).parent
        self._ready, self._log = Path(self._folder.name, "ready.json"), Path(self._folder.name, "log")
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"local server of {self._name}"

    def GetEndpoint(self) -> str:  # noqa: N802 - TFX's name
        """Where its gRPC API is.

        Raises:
          FileNotFoundError: it is not up.
        """
        return f"127.0.0.1:{json.loads(self._ready.read_text())['grpc_port']}"

    def Start(self) -> None:  # noqa: N802 - TFX's name
        """Starts the process."""
        command = [sys.executable, "-m", "components.serving.server", "--port=0", "--rest_api_port=0"]
        command += [f"--model_name={self._name}", f"--model_base_path={self._base}", f"--ready_file={self._ready}"]
        command += [f"--die_with_parent={os.getpid()}"]
        # The run may have been started from any folder.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def WaitUntilRunning(self, deadline: float) -> None:  # noqa: N802 - TFX's name
        """Waits until it listens.

        Args:
          deadline: seconds since the epoch.

        Raises:
          JobAborted: it has ended.
          DeadlineExceeded: it takes too long.
        """
        while not self._ready.exists():
            if self._process is None or self._process.poll() is not None:
                raise error_types.JobAborted("the server has ended before it listened")
            if time.time() > deadline:
                raise error_types.DeadlineExceeded("the server does not listen")
            time.sleep(_TICK_SECONDS)

    def Stop(self) -> None:  # noqa: N802 - TFX's name
        """Ends it, and takes its log along."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()

    def GetLogs(self) -> str | None:  # noqa: N802 - TFX's name
        """The end of what it has told."""
        return self._log.read_text(errors="replace")[-_TOLD_BYTES:] if self._log.exists() else None


def _on_this_disk(model_path: str, folder: Path) -> Path:
    """The model; of one in an object store a copy, since the server reads files."""
    if "://" not in model_path:
        return Path(model_path)
    copy = folder / "model" / model_path.rstrip("/").rpartition("/")[2]
    io_utils.copy_dir(model_path, str(copy))
    return copy
