"""A fake of Flink's REST API: it lists jobs, and cancels them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.fakes.fake_service import JsonHandler, serving


@dataclass
class FakeFlink:
    """The cluster.

    Attributes:
      address: host:port.
      jobs: name → state; a name's id is the name in reverse.
      config: the settings of the job manager.
      overview: the answer of /overview.
      asked_for_slots: set when it has been answered.
      task_managers: the answer of /taskmanagers.
      cancelled: set when a job has been cancelled.
      listed: set when the jobs have been listed.
    """

    address: str = ""
    jobs: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    overview: dict[str, Any] = field(default_factory=dict)
    task_managers: list[dict[str, Any]] = field(default_factory=list)
    asked_for_slots: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    listed: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def fake_flink() -> Iterator[FakeFlink]:
    """Yield a fake, as long as the context lasts."""
    flink = FakeFlink()

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            match self.path.split("/")[1:]:
                case ["jobs", "overview"]:
                    jobs = [
                        {"jid": name[::-1], "name": name, "state": state, "start-time": 1}
                        for name, state in flink.jobs.items()
                    ]
                    self.respond({"jobs": jobs})
                    flink.listed.set()
                case ["jobs", job]:
                    self.respond({"state": flink.jobs[job[::-1]]})
                case ["jobmanager", "config"]:
                    self.respond([{"key": key, "value": value} for key, value in flink.config.items()])
                case ["taskmanagers"]:
                    self.respond({"taskmanagers": flink.task_managers})
                case ["overview"]:
                    self.respond(flink.overview)
                    flink.asked_for_slots.set()

        def do_PATCH(self) -> None:
            job = self.path.partition("?")[0].rpartition("/")[2][::-1]
            self.respond({}, 409 if flink.jobs[job] == "FINISHED" else 202)
            flink.jobs[job] = "CANCELED"
            flink.cancelled.set()

    with serving(Handler) as port:
        flink.address = f"localhost:{port}"
        yield flink
