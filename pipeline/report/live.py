"""The pages on runs as they are at this moment, made when somebody asks: the list of all, and each run's own."""

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
from pipeline.metadata import history, story
from pipeline.metadata.database import Location, exists
from pipeline.metadata.history import Row
from pipeline.metadata.store import Store
from pipeline.metadata.tables import NoTablesError
from pipeline.report import page, site

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"

_REST = 10
"""The list is made anew no sooner than after so many times what it took: it costs a tenth of a core at most."""
_CHANGES = slice(24, 28)
"""Where SQLite counts a file's changes: two of them may come too close for the clock of a file system."""
_LOG_BYTES = 8 << 20
"""Of a longer log the end is shown."""
_RUNNING = "running"


@dataclass(frozen=True)
class Answer:
    """What is at an address.

    Attributes:
      status: of HTTP.
      body: the content.
      kind: its media type.
      tag: of the version; empty for what has none.
    """

    status: int
    body: bytes
    kind: str = TEXT
    tag: str = ""


class Pages:
    """The pages of one store; several threads may ask at once.

    Args:
      place: of the store, which may come later.
      logs: the folder with what our own runs write down.
      pipeline: its runs alone; None: all that are there.
    """

    def __init__(self, place: Location, logs: Path, pipeline: str | None) -> None:
        self._place, self._pipeline, self._logs = place, pipeline, logs
        self._listing = threading.Lock()
        self._list, self._made_of, self._stands_until = Answer(404, b""), "", 0.0
        self._running: list[str] = []
        self._died: set[str] = set()
        self._itself = secrets.token_hex(4)

    def answer(self, path: str, known: str = "") -> Answer:
        """What is at a path.

        Args:
          path: `/`, `/run/<id>/` or `/run/<id>/<node>.log`, as a URL has it.
          known: the tag of the version that the asker has; that one is not sent again.
        """
        parts = [os.fsdecode(unquote_to_bytes(part)) for part in path.split("/")]
        found: Answer | None = None
        try:
            if parts == ["", ""]:
                found = self._all(known)
            elif len(parts) == 4 and parts[:2] == ["", "run"]:
                found = self._log(*parts[2:]) if parts[3] else self._run(parts[2], known)
        except PipelineError as error:
            return Answer(503, _bytes(f"{error.headline}\nremedy: {error.remedy}\n"))
        return found or Answer(404, b"There is no such page.\n")

    def _all(self, known: str) -> Answer:
        # Whoever asks while it is being made gets that one.
        with self._listing:
            tag = self._tag_of_all()
            if tag != self._made_of and time.monotonic() >= self._stands_until:
                started = time.monotonic()
                rows, note = self._rows()
                self._running = [row.run for row in rows if row.state == _RUNNING]
                body = _bytes(site.rendered(rows, lambda run: site.way("run", run, ""), tag, note))
                self._list, self._made_of = Answer(200, body, HTML, tag), tag
                ended = time.monotonic()
                self._stands_until = ended + _REST * (ended - started)
            made = self._list
        return _unchanged(made.tag) if made.tag == known else made

    def _tag_of_all(self) -> str:
        """Of all that the list is made of."""
        own = sorted((path.parent.name, _version(path)) for path in self._logs.glob("*/run.json"))
        # A run that dies leaves no other sign than that it no longer runs; who has not asked since is told later, too.
        states = {run: (history.record(self._logs, run) or {}).get("state") for run in self._running}
        self._died |= {run for run, state in states.items() if state == history.DIED}
        return _tag(self._itself, self._version_of_store(), own, sorted(self._died))

    def _version_of_store(self) -> object:
        if isinstance(self._place, Path):
            journal = self._place.with_name(f"{self._place.name}-wal")
            return _version(self._place), _changes(self._place), _version(journal)
        try:
            store = self._store()
            return None if store is None else store.changed()
        except PipelineError as error:
            return error.headline

    def _rows(self) -> tuple[list[Row], str]:
        """The runs, newest first, and what is not well with the store."""
        rows: list[Row] = []
        note = ""
        try:
            store = self._store()
            if store is not None:
                # One more than the page shows, so that it can tell whether any are left out.
                rows = list(history.rows(store, self._logs, self._pipeline, site.MOST + 1))
        except PipelineError as error:
            note = error.headline
        since = rows[-1].started if len(rows) > site.MOST else 0.0
        rows += history.unentered(self._logs, self._pipeline, {row.run for row in rows}, since)
        return sorted(rows, key=lambda row: row.started, reverse=True), note

    def _run(self, name: str, known: str) -> Answer | None:
        version = _version(self._logs / name / "run.json") if history.is_folder_name(name) else None
        own = history.record(self._logs, name)
        if own is not None:
            tag = _tag(version, own["state"])
            if tag == known:
                return _unchanged(tag)
            if own["state"] == _RUNNING:
                return self._progress(story.of_record(self._logs, own), tag)
        store = self._store()
        runs = [] if store is None else [each for each in store.runs_like(name, self._pipeline) if each.name == name]
        if store is None or not runs:
            return None if own is None else self._progress(story.of_record(self._logs, own), tag)
        if own is None:
            executions = store.executions(name)
            tag = _tag(executions)
            if tag == known:
                return _unchanged(tag)
            if history.state_of(executions) == _RUNNING:
                return self._progress(story.of_run(store, self._logs, runs[0]), tag)
        # Imported late: the list needs nothing that reads what nodes have made.
        from pipeline.report import content

        text = page.rendered(content.of_run(store, self._logs, runs[0]), self._logs / name, tag)
        return Answer(200, _bytes(text), HTML, tag)

    def _progress(self, told: dict[str, Any], tag: str) -> Answer:
        return Answer(200, _bytes(page.progress(told, self._logs / told["run"], tag)), HTML, tag)

    def _log(self, run: str, name: str) -> Answer | None:
        """What a node has written; nothing but such a file of a run's own folder."""
        if not history.is_folder_name(run) or not history.is_folder_name(name) or not name.endswith(".log"):
            return None
        file = self._logs / run / name
        if file.is_symlink() or not file.is_file():
            return None
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - _LOG_BYTES))
            return Answer(200, stream.read(_LOG_BYTES))

    def _store(self) -> Store | None:
        # Opened each time: it may have come just now, or be another one than before.
        try:
            return Store(self._place) if exists(self._place) else None
        except NoTablesError:
            if isinstance(self._place, Path):
                raise
            return None


def _unchanged(tag: str) -> Answer:
    return Answer(304, b"", HTML, tag)


def _version(file: Path) -> tuple[int, ...] | None:
    """What is another where a file has changed."""
    try:
        told = file.stat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size, told.st_ino


def _changes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_CHANGES.stop)[_CHANGES]
    except OSError:
        return b""


def _tag(*made_of: object) -> str:
    return hashlib.sha256(repr(made_of).encode(errors="surrogateescape")).hexdigest()[:16]


def _bytes(text: str) -> bytes:
    # What is no text (a lone surrogate out of a file name, say) is sent as a question mark.
    return text.encode(errors="replace")
