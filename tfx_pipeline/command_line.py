"""Run verbs of the command line in a process that stays, so that TensorFlow is imported only once."""

from __future__ import annotations

import atexit
import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
"""The checkout that this package belongs to."""
_REJECTED = 3
"""Exit code of a run whose data or model was rejected by a gate, which is a result and not an error."""
_INTERRUPTED = 130


class CommandError(Exception):
    """A verb that failed. The text says what was expected, what was received, and what to do."""


class _Process(subprocess.Popen[str]):
    """A process with pipes."""

    stdin: IO[str]
    stdout: IO[str]


class CommandLine:
    """A process that runs verbs, one at a time. It starts with the first verb and ends with this process."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._lock = threading.Lock()

    def run(self, arguments: Sequence[str], on_text: Callable[[str], None] | None = None) -> str:
        """Run a verb.

        Args:
          arguments: The verb and its options.
          on_text: Function that is called with each part of the output as soon as the verb prints it.

        Returns:
          The whole output.

        Raises:
          CommandError: The verb failed, or its process ended.
          KeyboardInterrupt: The user interrupted the verb, which has ended as after Ctrl-C in a terminal.
        """
        texts: list[str] = []
        with self._lock, contextlib.ExitStack() as unanswered:
            process = self._start()
            # Without an answer to this verb, the next verb would receive it.
            unanswered.callback(self._kill)
            process.stdin.write(json.dumps({"folder": str(Path.cwd()), "arguments": [*arguments]}) + "\n")
            process.stdin.flush()
            try:
                reply = self._read_reply(process, texts, on_text)
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                self._read_reply(process, texts, None)
                unanswered.pop_all()
                raise
            unanswered.pop_all()
        output, code = "".join(texts), reply["code"]
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (0, _REJECTED):
            raise CommandError(_find_error(reply["errors"], output))
        return output

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            # The end of its requests ends the process. If it was killed, its last request cannot be flushed.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
            process.stdout.close()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self.close()

    def _start(self) -> _Process:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            python = ROOT / ".venv" / "bin" / "python"
            self._process = _Process(
                [str(python) if python.exists() else sys.executable, str(Path(__file__).with_name("worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                # An interrupt of this process reaches the verb only through `run`.
                start_new_session=True,
            )
        return self._process

    def _read_reply(self, process: _Process, texts: list[str], on_text: Callable[[str], None] | None) -> dict[str, Any]:
        """Return the last message of a verb, and append its output to `texts`."""
        for line in process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "code" in message:
                return message
            texts.append(message["text"])
            if on_text is not None:
                on_text(message["text"])
        raise CommandError(
            "the process that runs the pipeline ended before its work was done; the kernel kills processes if there is "
            "too little memory\n  remedy: free memory, then try again"
        )


def _find_error(errors: str, output: str) -> str:
    """Return the error that a verb printed: from its beginning in one of the two streams, or all that was printed."""
    for text in (errors, output):
        lines = text.splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("error")]
        if starts:
            return "\n".join(lines[starts[-1] :])
    return (errors or output).strip()


COMMAND_LINE = CommandLine()
"""The process of all runs of this Python process."""
atexit.register(COMMAND_LINE.close)
