"""Run the local server in a separate process, as a model server of TFX's InfraValidator."""

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

from components.base.files import is_remote
from components.base.processes import describe_exit
from components.serving.forked_server import ForkedServer

_ROOT = Path(__file__).parents[2]
_TICK_SECONDS = 0.05
_GRACE_SECONDS = 10
_END_SECONDS = 1
_LOG_BYTES = 20_000


class LocalServerRunner(base_runner.BaseModelServerRunner):  # type: ignore[misc]
    """Starts and stops one server.

    Args:
      model_path: Folder of the version, `<base path>/<model name>/<version>`.
      model_name: Name of the model in requests.
      forked: Process that becomes the server. If None, an interpreter is started.
    """

    def __init__(self, model_path: str, model_name: str, forked: ForkedServer | None = None) -> None:
        self._name = model_name
        self._forked = forked
        self._folder = tempfile.TemporaryDirectory(prefix="serving-check-")
        self._base = _copy_to_disk(model_path, Path(self._folder.name)).parent
        self._ready, self._log = Path(self._folder.name, "ready.json"), Path(self._folder.name, "log")
        self._process: subprocess.Popen[bytes] | ForkedServer | None = None

    def __repr__(self) -> str:
        return f"local server of {self._name}"

    def GetEndpoint(self) -> str:  # noqa: N802 - TFX's name
        """Return the address of the server's gRPC API.

        Raises:
          FileNotFoundError: If the server does not listen yet.
        """
        return f"127.0.0.1:{json.loads(self._ready.read_text())['grpc_port']}"

    def Start(self) -> None:  # noqa: N802 - TFX's name
        """Start the process."""
        options = ["--port=0", "--rest_api_port=0", f"--model_name={self._name}", f"--model_base_path={self._base}"]
        # The Trainer's model is unverified: the manifest is only written when the model is pushed.
        options += [f"--ready_file={self._ready}", f"--die_with_parent={os.getpid()}", "--allow_unverified"]
        if self._forked is not None:
            self._forked.run(*options, log=self._log)
            self._process = self._forked
            return
        command = [sys.executable, "-m", "components.serving.server", *options]
        # Add the repository to the path, because a run can be started from any folder.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )

    def WaitUntilRunning(self, deadline: float) -> None:  # noqa: N802 - TFX's name
        """Wait until the server listens.

        Args:
          deadline: Latest time, in seconds since the epoch.

        Raises:
          JobAborted: If the server exited.
          DeadlineExceeded: If the server did not listen in time.
        """
        while self._process is not None and self._process.poll() is None:
            if self._ready.exists():
                return
            if time.time() > deadline:
                raise error_types.DeadlineExceeded("expected the server to listen before the deadline")
            time.sleep(_TICK_SECONDS)
        raise error_types.JobAborted(f"{self.describe_end()}{'' if self._ready.exists() else ' before it listened'}")

    def describe_end(self) -> str | None:
        """Return how the process ended, such as "the server was killed by SIGKILL"; None if it runs.

        This waits up to a second, because the kernel closes the connections of a killed process before its parent can
        see that it ended.
        """
        if self._process is None:
            return None
        try:
            return f"the server {describe_exit(self._process.wait(_END_SECONDS))}"
        except subprocess.TimeoutExpired:
            return None

    def Stop(self) -> None:  # noqa: N802 - TFX's name
        """End the process and delete its log."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._folder.cleanup()

    def GetLogs(self) -> str | None:  # noqa: N802 - TFX's name
        """Return the end of the server's log; None if there is no log yet."""
        return self._log.read_text(errors="replace")[-_LOG_BYTES:] if self._log.exists() else None


def _copy_to_disk(model_path: str, folder: Path) -> Path:
    """Return a local path of the model; copy a model from an object store, because the server reads local files."""
    if not is_remote(model_path):
        return Path(model_path)
    copy = folder / "model" / model_path.rstrip("/").rpartition("/")[2]
    io_utils.copy_dir(model_path, str(copy))
    return copy
