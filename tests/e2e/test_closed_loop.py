"""After a push, with real trips and processes: requests drift, a run becomes due, canaries are judged."""

from __future__ import annotations

import base64
import contextlib
import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow as tf
import yaml

from components.pusher import serving_state
from components.pusher.serving_state import Stages
from data.taxi import find_real_trips
from tests.support.runs.command import ROOT, Ended, command
from tests.support.servers.balancer import Balancer, free_address, haproxy
from tests.support.servers.load import Load
from tests.support.servers.prometheus import prometheus
from tests.support.servers.serving import Server, serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Row = dict[str, str]
FLOATS = {"fare", "trip_miles", "pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude"}
TEXTS = {"payment_type", "company"}
PATH = "/v1/models/taxi:predict"


def trips() -> list[Row]:
    with find_real_trips().open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def body(row: Row) -> bytes:
    """Return a request with a trip as a tf.Example, without the columns that define the label."""
    example = tf.train.Example()
    for name, text in row.items():
        feature = example.features.feature[name]
        if name == "tips" or not text:
            continue
        if name in TEXTS:
            feature.bytes_list.value.append(text.encode())
        elif name in FLOATS:
            feature.float_list.value.append(float(text))
        else:
            feature.int64_list.value.append(int(float(text)))
    serialized = base64.b64encode(example.SerializeToString()).decode()
    return json.dumps({"instances": [{"b64": serialized}]}).encode()


def drift(row: Row) -> Row:
    """Change a trip to another fleet and the night shift."""
    return {**row, "company": "Night Cab", "trip_start_hour": str(int(row["trip_start_hour"]) % 4)}


class Taxi:
    """The pipeline of the trips in a folder, with spans, a rollout in seconds, and two servers behind HAProxy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pushed = folder, folder / "out" / "taxi" / "pushed"
        self.log = folder / "requests"
        self.rest, self.metrics = free_address(), free_address()
        self.values = yaml.safe_load((ROOT / "configs" / "taxi.yaml").read_text())
        self.values["data"]["path"] = str(folder / "spans" / "{SPAN}" / "trips.csv")
        self.values |= {
            "push": {"stage_on_push": "first"},
            "schedule": {"start": "2026-01-01", "only_if": "drift", "drift": 0.9},
            "monitor": {"requests": str(self.log)},
        }

    def span(self, number: int, rows: list[Row]) -> None:
        write(self.folder / "spans" / str(number) / "trips.csv", rows)

    def run(self, verb: str, *arguments: str) -> Ended:
        config = self.folder / "taxi.yaml"
        config.write_text(yaml.safe_dump(self.values))
        options = ("--config", str(config), "--output", str(self.folder / "out"))
        return command(*verb.split(), *options, "--set", "training.strategy.kind=none", *arguments)

    def train(self, *arguments: str) -> int:
        """Return the version that a run pushes."""
        ended = self.run("run", "--local", "--json", *arguments)
        assert ended.exit_code == 0, ended.err
        return int(Path(ended.result["pushed"]).name)

    @contextlib.contextmanager
    def start_servers(self) -> Iterator[Balancer]:
        options = (f"--model_config_file={self.pushed}/rollout/models.config", f"--request_log={self.log}")
        with contextlib.ExitStack() as stack:
            servers: list[Server] = [
                stack.enter_context(serving(self.folder / name, *options)) for name in ("one", "two")
            ]
            addresses = [f"127.0.0.1:{instance.rest}" for instance in servers]
            settings = {"servers": addresses, "grpc_servers": [], "listen": self.rest, "listen_metrics": self.metrics}
            self.values["push"]["rollout"] = settings
            # The files with the servers' addresses.
            stable = serving_state.read(self.pushed).stable
            assert stable
            assert self.run("models promote", str(stable)).exit_code == 0
            # HAProxy takes a server for up until it has looked.
            for instance in servers:
                instance.wait("taxi", stable)
            balancer = stack.enter_context(haproxy(self.pushed / "rollout" / "haproxy.cfg", self.rest, self.metrics))
            balancer.wait_until_up("stable", 2)
            yield balancer


@contextlib.contextmanager
def load(balancer: Balancer, rows: list[Row], change: Callable[[Row], Row] = lambda row: row) -> Iterator[Load]:
    """Yield a client that repeats the trips; check at the end that none of its requests failed."""
    with Load(balancer.rest, PATH, *(body(change(row)) for row in rows), connections=4) as client:
        yield client
    assert {status for status, _ in client.answers} == {200}


def test_requests_drift_and_canaries_are_judged(tmp_path: Path) -> None:
    taxi, rows = Taxi(tmp_path), trips()
    taxi.span(1, rows[::2])
    first = taxi.train()

    with taxi.start_servers() as balancer, load(balancer, rows[1:4000:2], drift) as client:
        client.wait(2500)
        # A log file is closed after five minutes, or when its server ends.
    ended = taxi.run("monitor", "--json")
    assert ended.exit_code == 3, ended.err
    (judged,) = ended.result["judgements"]
    assert {finding["column"] for finding in judged["findings"]} == {"company", "trip_start_hour"}

    taxi.span(2, rows[1::2])
    due = taxi.run("due")
    assert due.exit_code == 0, due.out
    assert due.out.startswith("due: requests have drifted, and span 2 is new: ")
    good = taxi.train()
    flipped = taxi.train("--set", "data.label=not (tips > 0.2 * fare)")
    assert first < good < flipped
    assert serving_state.read(taxi.pushed).stages == Stages(stable=first)

    with (
        taxi.start_servers() as balancer,
        prometheus(tmp_path / "prometheus", [taxi.metrics]) as metrics,
        load(balancer, rows[1:4000:2]) as client,
    ):
        taxi.values["canary"] = {
            "prometheus": f"http://{metrics.address}",
            "apply": list(balancer.reload),
            "steps": [{"percent": 10, "duration": 5}, {"percent": 50, "duration": 5}],
            "max_latency": 100,
            "interval": 1,
        }
        client.wait(500)
        metrics.wait_for("haproxy_backend_http_responses_total")
        worse = taxi.run("models rollout", "--json")
        assert worse.exit_code == 3, worse.err
        outcome = worse.result
        assert (outcome["state"], outcome["version"], len(outcome["steps"])) == ("rolled back", flipped, 1)
        assert "output probability differs by" in outcome["change"]["reason"]
        assert "no newer version that was no canary yet" in taxi.run("models rollout").out
        better = taxi.run("models rollout", str(good))
        assert better.exit_code == 0, better.out
        assert f"version {good} is promoted" in better.out
        client.wait(500)
    assert serving_state.read(taxi.pushed).stages == Stages(stable=good)
