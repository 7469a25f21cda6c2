"""`runner.py schema`: the JSON Schema of the config, so that an editor completes and checks it."""

from __future__ import annotations

import argparse
import json
import sys

from pipeline.authoring.config import Config

HELP = "Write the JSON Schema of the config; editors read it from a file named in the config's first line."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no options."""


def run(_options: argparse.Namespace) -> int:
    json.dump(Config.model_json_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0
