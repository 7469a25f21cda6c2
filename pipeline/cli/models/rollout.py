"""`runner.py models rollout`: increase the traffic of a version until it is stable, or until it exceeds a bound."""

from __future__ import annotations

import argparse
import functools
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from components.base.errors import GATE, MACHINE
from components.pusher.config import RolloutConfig
from pipeline.cli import notifications
from pipeline.cli import options as shared
from pipeline.cli.output import print_json, show, suppress_native_stderr
from pipeline.registry import canary_rollout, promotion, traffic_metrics
from pipeline.registry.canary_rollout import Measurement, State

if TYPE_CHECKING:
    from pipeline.authoring.config import Config

HELP = (
    "Give a version growing shares of the traffic (section canary), then make it the stable version. If it exceeds a "
    "bound, end the canary with exit code 3. A rollout that was interrupted continues when it is started again."
)
EXAMPLE = "python runner.py models rollout 3 --config configs/mine.yaml"
_EXIT_CODES: dict[State, int] = {"promoted": 0, "rolled back": GATE, "not judged": MACHINE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_config(parser)
    parser.add_argument(
        "version",
        type=int,
        nargs="?",
        metavar="VERSION",
        help="its number (default: the canary, or the newest version if it was no canary yet)",
    )
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    config = shared.load_config(options).config
    push_folder = shared.get_push_folder(config)
    number = options.version or canary_rollout.find_candidate(push_folder)
    if number is None:
        now = promotion.describe(push_folder.state())
        if options.json:
            print_json({"state": None})
        else:
            show(f"{push_folder.path}: {now}; no newer version that was no canary yet")
        return 0
    outcome = canary_rollout.roll_out(
        push_folder,
        number,
        config.canary,
        functools.partial(_measure, config, push_folder.settings or RolloutConfig()),
        (lambda _: None) if options.json else show,
    )
    if options.json:
        print_json(asdict(outcome) | {"change": outcome.change.model_dump(mode="json", by_alias=True)})
    else:
        show(f"{push_folder.path}: version {number} is {outcome.state}: {outcome.change.reason}")
    if outcome.state != "promoted":
        notifications.send_rollback(
            config.notify, config.pipeline.name, push_folder.path, outcome.change, number, outcome.stable
        )
    return _EXIT_CODES[outcome.state]


def _measure(config: Config, settings: RolloutConfig, stable: int, canary: int, since: float) -> Measurement:
    """Measure the stable version and the canary.

    Args:
      config: The config with the sections `canary` and `monitor`.
      settings: Settings of the rollout, which name the model and its labels in the metrics.
      stable: Number of the stable version.
      canary: Number of the canary.
      since: Start of the time window, in seconds since the epoch.
    """
    seconds = time.time() - since
    stable_traffic = traffic_metrics.read(config.canary, "stable", stable, settings, seconds)
    canary_traffic = traffic_metrics.read(config.canary, "canary", canary, settings, seconds)
    predictions = None
    monitoring = config.section("monitor")
    if monitoring is not None and monitoring.requests:
        # Imported late: it imports TensorFlow.
        with suppress_native_stderr():
            from pipeline.registry import canary_predictions

            predictions = canary_predictions.read(stable, canary, since, monitoring.requests)
    return Measurement(stable_traffic, canary_traffic, predictions)
