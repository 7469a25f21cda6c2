"""Run the local server in a separate process, as a model server of TFX's InfraValidator."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tfx.components.infra_validator import error_types
from tfx.components.infra_validator.model_server_runners import base_runner
from tfx.utils import io_utils

from components.base.child_process import WaitingProcess
from components.base.files import is_remote
from components.base.processes import describe_exit
from components.serving import server_process

_TICK_SECONDS = 0.05
_GRACE_SECONDS = 10
_END_SECONDS = 1
_LOG_BYTES = 20_000


class LocalServerRunner(base_runner.BaseModelServerRunner):  # type: ignore[misc]
    """Starts and stops one server.

    Args:
      model_path: Folder of the version, `<base path>/<model name>/<version>`.
      model_name: Name of the model in requests.
      forked: Process that becomes the server, see `server_process`. If None, an interpreter is started.
    """

    def __init__(self, model_path: str, model_name: str, forked: WaitingProcess | None = None) -> None:
        self._name = model_name
        self._forked = forked
        self._folder = tempfile.TemporaryDirectory(prefix="serving-check-")
        self._base = _copy_to_disk(model_path, Path(self._folder.name)).parent
        self._ready = Path(self._folder.name, "ready.json")
        self._process: WaitingProcess | None = None

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
        options += [f"--ready_file={self._ready}", "--allow_unverified"]
        self._process = self._forked or WaitingProcess(server_process.__name__, fork=False)
        self._process.run(*options)

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
        code = self._process.poll(_END_SECONDS) if self._process else None
        return None if code is None else f"the server {describe_exit(code)}"

    def Stop(self) -> None:  # noqa: N802 - TFX's name
        """End the process and delete its files."""
        if self._process is not None:
            self._process.end(_GRACE_SECONDS)
        self._folder.cleanup()

    def GetLogs(self) -> str | None:  # noqa: N802 - TFX's name
        """Return the end of the server's output; None if the server has not been started."""
        return self._process.output()[-_LOG_BYTES:] if self._process else None


def _copy_to_disk(model_path: str, folder: Path) -> Path:
    """Return a local path of the model; copy a model from an object store, because the server reads local files."""
    if not is_remote(model_path):
        return Path(model_path)
    copy = folder / "model" / model_path.rstrip("/").rpartition("/")[2]
    io_utils.copy_dir(model_path, str(copy))
    return copy
