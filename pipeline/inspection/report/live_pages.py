"""The live pages about runs, created on request: the list of runs, each run's page, and its nodes' logs."""

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

from components.errors import PipelineError
from pipeline.core import run_record
from pipeline.core.metadata.location import Location, exists
from pipeline.core.metadata.sql import NoTablesError
from pipeline.core.metadata.store import Store
from pipeline.inspection import run_history
from pipeline.inspection.report import run_page, runs_page
from pipeline.inspection.run_history import RunListEntry

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"

_PAUSE_FACTOR = 10
"""The list is created again at the earliest after this many times the time that it took: at most a tenth of a core."""
_CHANGE_COUNTER = slice(24, 28)
"""SQLite's counter of changes in a file's header: two changes may have the same time stamp of the file system."""
_LOG_BYTES = 8 << 20
"""Only the end of a longer log is sent."""
_RUNNING = "running"


@dataclass(frozen=True)
class Response:
    """An HTTP response.

    Attributes:
      status: of HTTP.
      body: the content.
      media_type: of the body.
      tag: the entity tag of the page's version; empty if it has none.
    """

    status: int
    body: bytes
    media_type: str = TEXT
    tag: str = ""


class Pages:
    """The pages of one store; safe to call from several threads.

    Args:
      location: of the store, which may be created later.
      logs: the folder with a folder per run.
      pipeline: only its runs; None: of all pipelines.
    """

    def __init__(self, location: Location, logs: Path, pipeline: str | None) -> None:
        self._location, self._pipeline, self._logs = location, pipeline, logs
        self._list_lock = threading.Lock()
        self._list, self._list_version, self._list_valid_until = Response(404, b""), "", 0.0
        self._running: list[str] = []
        self._died: set[str] = set()
        self._instance = secrets.token_hex(4)

    def respond(self, path: str, client_tag: str = "") -> Response:
        """Returns the page at a path.

        Args:
          path: `/`, `/run/<id>/` or `/run/<id>/<node>.log`, quoted as in a URL.
          client_tag: the tag of the version that the client has; status 304 if it is the current one.
        """
        parts = [os.fsdecode(unquote_to_bytes(part)) for part in path.split("/")]
        response: Response | None = None
        try:
            if parts == ["", ""]:
                response = self._runs(client_tag)
            elif len(parts) == 4 and parts[:2] == ["", "run"]:
                response = self._log(*parts[2:]) if parts[3] else self._run(parts[2], client_tag)
        except PipelineError as error:
            return Response(503, _encode(f"{error.headline}\nremedy: {error.remedy}\n"))
        return response or Response(404, b"There is no such page.\n")

    def _runs(self, client_tag: str) -> Response:
        # A request that waits for the lock gets the list that was created meanwhile.
        with self._list_lock:
            tag = self._tag_of_runs()
            if tag != self._list_version and time.monotonic() >= self._list_valid_until:
                started = time.monotonic()
                runs, note = self._list_entries()
                self._running = [run.run for run in runs if run.state == _RUNNING]
                page = runs_page.render(runs, lambda run: runs_page.relative_url("run", run, ""), tag, note)
                self._list, self._list_version = Response(200, _encode(page), HTML, tag), tag
                ended = time.monotonic()
                self._list_valid_until = ended + _PAUSE_FACTOR * (ended - started)
            current = self._list
        return _not_modified(current.tag) if current.tag == client_tag else current

    def _tag_of_runs(self) -> str:
        """Returns the tag of everything that the list is created from."""
        records = sorted((path.parent.name, _version(path)) for path in self._logs.glob("*/run.json"))
        # A run whose process died changes no file. The set keeps it, for clients that request the list later.
        states = {run: (run_record.record(self._logs, run) or {}).get("state") for run in self._running}
        self._died |= {run for run, state in states.items() if state == run_record.DIED}
        return _tag(self._instance, self._store_version(), records, sorted(self._died))

    def _store_version(self) -> object:
        if isinstance(self._location, Path):
            journal = self._location.with_name(f"{self._location.name}-wal")
            return _version(self._location), _change_counter(self._location), _version(journal)
        try:
            store = self._store()
            return None if store is None else store.changed()
        except PipelineError as error:
            return error.headline

    def _list_entries(self) -> tuple[list[RunListEntry], str]:
        """Returns the runs, newest first, and the store's error, if any."""
        runs: list[RunListEntry] = []
        note = ""
        try:
            store = self._store()
            if store is not None:
                # One more than the page lists, so that the page can report that there are more.
                runs = list(run_history.list_runs(store, self._logs, self._pipeline, runs_page.MOST + 1))
        except PipelineError as error:
            note = error.headline
        since = runs[-1].started if len(runs) > runs_page.MOST else 0.0
        runs += run_history.runs_outside_store(self._logs, self._pipeline, {run.run for run in runs}, since)
        return sorted(runs, key=lambda run: run.started, reverse=True), note

    def _run(self, name: str, client_tag: str) -> Response | None:
        version = _version(self._logs / name / "run.json") if run_record.is_folder_name(name) else None
        record = run_record.record(self._logs, name)
        if record is not None:
            tag = _tag(version, record["state"])
            if tag == client_tag:
                return _not_modified(tag)
            if record["state"] == _RUNNING:
                return self._progress(run_history.describe_record(self._logs, record), tag)
        store = self._store()
        runs = [] if store is None else [each for each in store.runs_like(name, self._pipeline) if each.name == name]
        if store is None or not runs:
            return None if record is None else self._progress(run_history.describe_record(self._logs, record), tag)
        if record is None:
            executions = store.executions(name)
            tag = _tag(executions)
            if tag == client_tag:
                return _not_modified(tag)
            if run_history.state_of(executions) == _RUNNING:
                return self._progress(run_history.describe_run(store, self._logs, runs[0]), tag)
        # Imported late: only this page reads the outputs of nodes.
        from pipeline.inspection.report import content

        page = run_page.render(content.collect(store, self._logs, runs[0]), self._logs / name, tag)
        return Response(200, _encode(page), HTML, tag)

    def _progress(self, run: dict[str, Any], tag: str) -> Response:
        return Response(200, _encode(run_page.render_progress(run, self._logs / run["run"], tag)), HTML, tag)

    def _log(self, run: str, name: str) -> Response | None:
        """Returns a node's log; only regular files `*.log` directly in a run's folder."""
        if not run_record.is_folder_name(run) or not run_record.is_folder_name(name) or not name.endswith(".log"):
            return None
        file = self._logs / run / name
        if file.is_symlink() or not file.is_file():
            return None
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - _LOG_BYTES))
            return Response(200, stream.read(_LOG_BYTES))

    def _store(self) -> Store | None:
        # Opened for each request: it may have been created or replaced since the last one.
        try:
            return Store(self._location) if exists(self._location) else None
        except NoTablesError:
            if isinstance(self._location, Path):
                raise
            return None


def _not_modified(tag: str) -> Response:
    return Response(304, b"", HTML, tag)


def _version(file: Path) -> tuple[int, ...] | None:
    """Returns a value that differs when the file has changed."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _change_counter(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_CHANGE_COUNTER.stop)[_CHANGE_COUNTER]
    except OSError:
        return b""


def _tag(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _encode(text: str) -> bytes:
    # Characters that UTF-8 cannot encode, such as lone surrogates of a file name, are sent as question marks.
    return text.encode(errors="replace")
