"""Creates the live pages about runs on request: the list of runs, the pages of runs, and the logs of nodes."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from components.base.errors import PipelineError
from pipeline.core import run_record
from pipeline.core.metadata.location import Location, exists
from pipeline.core.metadata.sql import NoTablesError
from pipeline.core.metadata.store import Store
from pipeline.inspection import run_history
from pipeline.inspection.report import run_page, runs_page
from pipeline.inspection.run_history import RunListEntry

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"

_PAUSE_FACTOR = 10
"""The list of runs is recreated no sooner than after this factor times the seconds that it took.

It therefore uses at most about a tenth of a CPU core, however many clients request it.
"""
_CHANGE_COUNTER = slice(24, 28)
"""Position of the file change counter in the header of an SQLite file.

The modification time is not enough, because two changes may have the same time stamp in the file system.
"""
_LOG_BYTES = 8 << 20
"""Maximum size of a log that is sent. Of a longer log, only the end is sent."""
_RUNNING = "running"


@dataclass(frozen=True)
class Response:
    """An HTTP response.

    Attributes:
      status: HTTP status code.
      body: Content of the response.
      media_type: Media type of the body.
      tag: Entity tag (ETag) of the page's version. Empty if the page does not have one.
    """

    status: int
    body: bytes
    media_type: str = TEXT
    tag: str = ""


class Pages:
    """The pages about the runs in a store. The methods are thread-safe.

    Args:
      location: Location of the store, which need not exist yet.
      logs: Folder with one subfolder per run.
      pipeline: Name of the pipeline whose runs are shown. If None, all runs.
    """

    def __init__(self, location: Location, logs: Path, pipeline: str | None) -> None:
        self._location, self._pipeline, self._logs = location, pipeline, logs
        self._list_lock = threading.Lock()
        self._list, self._list_version, self._list_valid_until = Response(404, b""), "", 0.0
        self._running: list[str] = []
        self._died: set[str] = set()
        self._instance = secrets.token_hex(4)

    def respond(self, path: str, client_tag: str = "") -> Response:
        """Return the page at a path.

        Args:
          path: `/`, `/run/<id>/` or `/run/<id>/<node>.log`, quoted as in a URL.
          client_tag: Entity tag of the version that the client has. If it is current, the status is 304.
        """
        parts = [os.fsdecode(unquote_to_bytes(part)) for part in path.split("/")]
        response: Response | None = None
        try:
            if parts == ["", ""]:
                response = self._respond_list(client_tag)
            elif len(parts) == 4 and parts[:2] == ["", "run"]:
                response = self._respond_log(*parts[2:]) if parts[3] else self._respond_run(parts[2], client_tag)
        except PipelineError as error:
            return Response(503, _encode(f"{error.headline}\nremedy: {error.remedy}\n"))
        return response or Response(404, b"There is no such page.\n")

    def _respond_list(self, client_tag: str) -> Response:
        # A request that waits for the lock receives the list that another request created in the meantime.
        with self._list_lock:
            tag = self._compute_list_tag()
            if tag != self._list_version and time.monotonic() >= self._list_valid_until:
                started = time.monotonic()
                runs, note = self._read_runs()
                self._running = [run.run for run in runs if run.state == _RUNNING]
                page = runs_page.render(runs, lambda run: runs_page.relative_url("run", run, ""), tag, note)
                self._list, self._list_version = Response(200, _encode(page), HTML, tag), tag
                ended = time.monotonic()
                self._list_valid_until = ended + _PAUSE_FACTOR * (ended - started)
            current = self._list
        return _make_not_modified(current.tag) if current.tag == client_tag else current

    def _compute_list_tag(self) -> str:
        """Return an entity tag that changes whenever the list of runs may have changed."""
        records = sorted((path.parent.name, _read_file_version(path)) for path in self._logs.glob("*/run.json"))
        # The death of a run's process does not change a file. Keep such runs, for clients that request the list later.
        states = {run: (run_record.read_record(self._logs, run) or {}).get("state") for run in self._running}
        self._died |= {run for run, state in states.items() if state == run_record.DIED}
        return _compute_tag(self._instance, self._read_store_version(), records, sorted(self._died))

    def _read_store_version(self) -> object:
        if isinstance(self._location, Path):
            journal = self._location.with_name(f"{self._location.name}-wal")
            return (
                _read_file_version(self._location),
                _read_change_counter(self._location),
                _read_file_version(journal),
            )
        try:
            store = self._open_store()
            return None if store is None else store.get_last_change()
        except PipelineError as error:
            return error.headline

    def _read_runs(self) -> tuple[list[RunListEntry], str]:
        """Return the runs, the newest first, and the error message of the store. It is empty without an error."""
        runs: list[RunListEntry] = []
        note = ""
        try:
            store = self._open_store()
            if store is not None:
                # Read one run more than the page lists, so that the page can tell that there are more.
                runs = list(run_history.list_runs(store, self._logs, self._pipeline, runs_page.MOST + 1))
        except PipelineError as error:
            note = error.headline
        since = runs[-1].started if len(runs) > runs_page.MOST else 0.0
        runs += run_history.list_runs_outside_store(self._logs, self._pipeline, {run.run for run in runs}, since)
        return sorted(runs, key=lambda run: run.started, reverse=True), note

    def _respond_run(self, name: str, client_tag: str) -> Response | None:
        version = _read_file_version(self._logs / name / "run.json") if run_record.is_folder_name(name) else None
        record = run_record.read_record(self._logs, name)
        if record is not None:
            tag = _compute_tag(version, record["state"])
            if tag == client_tag:
                return _make_not_modified(tag)
            if record["state"] == _RUNNING:
                return self._respond_progress(run_history.describe_record(self._logs, record), tag)
        store = self._open_store()
        runs = [] if store is None else [run for run in store.runs_like(name, self._pipeline) if run.name == name]
        if store is None or not runs:
            if record is None:
                return None
            return self._respond_progress(run_history.describe_record(self._logs, record), tag)
        if record is None:
            executions = store.executions(name)
            tag = _compute_tag(executions)
            if tag == client_tag:
                return _make_not_modified(tag)
            if run_history.derive_state(executions) == _RUNNING:
                return self._respond_progress(run_history.describe_run(store, self._logs, runs[0]), tag)
        # Imported late because only this page reads the outputs of nodes.
        from pipeline.inspection.report import content

        page = run_page.render(content.collect(store, self._logs, runs[0]), self._logs / name, tag)
        return Response(200, _encode(page), HTML, tag)

    def _respond_progress(self, run: dict[str, Any], tag: str) -> Response:
        return Response(200, _encode(run_page.render_progress(run, self._logs / run["run"], tag)), HTML, tag)

    def _respond_log(self, run: str, name: str) -> Response | None:
        """Return a node's log. Only regular files `*.log` directly in the folder of a run are served."""
        if not run_record.is_folder_name(run) or not run_record.is_folder_name(name) or not name.endswith(".log"):
            return None
        file = self._logs / run / name
        if file.is_symlink() or not file.is_file():
            return None
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - _LOG_BYTES))
            return Response(200, stream.read(_LOG_BYTES))

    def _open_store(self) -> Store | None:
        # Open the store for each request, because it may have been created or replaced in the meantime.
        try:
            return Store(self._location) if exists(self._location) else None
        except NoTablesError:
            if isinstance(self._location, Path):
                raise
            return None


def _make_not_modified(tag: str) -> Response:
    return Response(304, b"", HTML, tag)


def _read_file_version(file: Path) -> tuple[int, ...] | None:
    """Return a value that changes when the file changes. None if the file does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_change_counter(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_CHANGE_COUNTER.stop)[_CHANGE_COUNTER]
    except OSError:
        return b""


def _compute_tag(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _encode(text: str) -> bytes:
    # UTF-8 cannot encode lone surrogates, which file names may contain. They are sent as question marks.
    return text.encode(errors="replace")
