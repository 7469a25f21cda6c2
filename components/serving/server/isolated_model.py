"""Load a version in a process of its own, so that its crash or its memory does not affect the other versions.

The server checks requests, batches them and counts them. Only the call of the graph is in the version's process. Each
version has its own threads in the server, with a connection per thread, which carries the arrays of one call at a time.
If the process ends, the calls in progress fail with UNAVAILABLE, and the version is loaded again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
import pickle
import queue
import re
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from grpc import StatusCode
from tensorflow.core.protobuf import meta_graph_pb2

from components.base.errors import MachineError
from components.base.processes import describe_exit, exit_now
from components.serving.server.errors import RequestError
from components.serving.server.logs import configure_logging
from components.serving.server.saved_model import Arrays, LoadedModel, SavedModel, TensorSpec
from components.serving.server.warm_up import warm_up

_PRELOAD = "components.serving.server.isolated_preload"
_MOST_CONNECTIONS = 128
"""Multiprocessing's fork server accepts 256 file descriptors for a process."""
_OOM_SCORE = "500"
"""Value of /proc/self/oom_score_adj, with which the kernel kills a version before the server if memory runs out."""
_END_SECONDS = 5.0
_MEMORY = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class Isolation(NamedTuple):
    """Limits of the process of a version.

    Attributes:
      connections: Maximum number of calls at the same time.
      max_bytes: Memory above which the process is killed, in bytes. If None, the memory is not limited.
    """

    connections: int
    max_bytes: int | None = None


class IsolatedModel(LoadedModel):
    """A SavedModel that is loaded and warmed up in a separate process.

    Args:
      folder: Folder of the SavedModel.
      intra_op_threads: Number of threads of one op.
      key: See `LoadedModel`.
      isolation: Limits of the process.

    Raises:
      MachineError: If the process ends before the version is loaded.
      Exception: If the version cannot be loaded or warmed up, as for `SavedModel` and `warm_up`.
    """

    def __init__(self, folder: Path, intra_op_threads: int, key: str, isolation: Isolation) -> None:
        context = multiprocessing.get_context("forkserver")
        # A fork of a process that has imported TensorFlow starts in milliseconds and shares its memory.
        context.set_forkserver_preload([_PRELOAD])
        pairs = [context.Pipe() for _ in range(min(isolation.connections, _MOST_CONNECTIONS))]
        self._max_bytes = isolation.max_bytes
        arguments = (folder, intra_op_threads, key, [theirs for _, theirs in pairs])
        self._process = context.Process(target=_serve, args=arguments, name=f"version {folder.name}", daemon=True)
        self._process.start()
        self.threads = ThreadPoolExecutor(len(pairs), thread_name_prefix=f"version {folder.name}")
        self._connections: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        for ours, theirs in pairs:
            # Otherwise the end of the process would not end the connection.
            theirs.close()
            self._connections.put(ours)
        try:
            meta_graph, requests = self._receive_loaded(folder, pairs[0][0])
            super().__init__(folder, meta_graph, key)
        except BaseException:
            self.close()
            raise
        self.warm_up_requests = requests
        logging.info("%s: loaded in process %d", folder, self._process.pid)

    def close(self) -> None:
        """End the process."""
        # Connections and threads end with this object: calls in progress and in batches still have to fail.
        self._process.kill()
        self._process.join()

    def find_failure(self) -> str | None:
        """Return how the process has ended, or kill it if it uses too much memory; None if it runs."""
        if not self._process.is_alive():
            return f"its process {describe_exit(self._process.exitcode or 0)}"
        used = 0 if self._max_bytes is None else _read_memory(self._process.pid or 0)
        if self._max_bytes is None or used <= self._max_bytes:
            return None
        self._process.kill()
        return f"its process used {used / 2**20:,.0f} MiB, and may use {self._max_bytes / 2**20:,.0f} MiB"

    def _receive_loaded(self, folder: Path, connection: Connection) -> tuple[Any, int]:
        """Wait until the process has loaded the version; return the signatures and the number of warm-up requests."""
        try:
            message = connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_END_SECONDS)
            raise MachineError(
                f"{folder}: expected its process to load it, received none: it {_describe_end(self._process.exitcode)}",
                "read the log of the server; free memory, or raise the limit of a version",
            ) from error
        if isinstance(message, Exception):
            raise message
        meta_graph, requests = message
        return meta_graph_pb2.MetaGraphDef.FromString(meta_graph), requests

    def _make_call(
        self, name: str, _definition: Any, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
    ) -> Callable[..., Sequence[Any]]:
        return functools.partial(self._call, name, tuple(inputs), tuple(outputs))

    def _call(self, name: str, inputs: Sequence[str], outputs: Sequence[str], *arrays: Any) -> list[Any]:
        connection = self._connections.get()
        try:
            connection.send((name, dict(zip(inputs, arrays, strict=True))))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            raise RequestError("the process of the version has ended; try again", StatusCode.UNAVAILABLE) from error
        finally:
            # A broken connection, too: the next call must fail instead of waiting.
            self._connections.put(connection)
        if isinstance(answer, Exception):
            raise answer
        return [answer[output] for output in outputs]


def _serve(folder: Path, intra_op_threads: int, key: str, connections: Sequence[Connection]) -> None:
    """Load a version and answer calls until the server closes the connections, or ends."""
    # Leave the process group: a signal to the group must not end the calls that the server waits for when it stops.
    os.setsid()
    configure_logging()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
    try:
        model = SavedModel(folder, intra_op_threads, key)
        warm_up(model, folder)
    except Exception as error:
        connections[0].send(_to_portable(error))
        return
    signatures = meta_graph_pb2.MetaGraphDef()
    for name, definition in model.meta_graph.signature_def.items():
        signatures.signature_def[name].CopyFrom(definition)
    connections[0].send((signatures.SerializeToString(), model.warm_up_requests))
    threads = [threading.Thread(target=_answer, args=(model, connection)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(model: LoadedModel, connection: Connection) -> None:
    try:
        while True:
            name, inputs = connection.recv()
            connection.send(_run(model, name, inputs))
    except (EOFError, OSError):
        # The server has unloaded the version, or has ended.
        return
    except BaseException:
        # For example, a lack of memory for the inputs. The server would wait for the answer.
        traceback.print_exc()
        exit_now(1)


def _run(model: LoadedModel, name: str, inputs: Arrays) -> Any:
    try:
        # The server has checked the rows.
        return replace(model.signatures[name], row_check=None).run(inputs)
    except Exception as error:
        return _to_portable(error)


def _to_portable(error: Exception) -> Exception:
    """Return an error that can be sent to the server; errors of TensorFlow cannot be."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in the same expression
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _describe_end(code: int | None) -> str:
    return "still runs" if code is None else describe_exit(code)


def _read_memory(pid: int) -> int:
    """Return the bytes of a process's memory that are not backed by files; 0 if the process has ended."""
    with contextlib.suppress(OSError):
        if match := _MEMORY.search(Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")):
            return int(match[1]) << 10
    return 0
