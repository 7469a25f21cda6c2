"""`runner.py schema`: write the JSON Schema of the config. Editors use it to complete and check configs."""

from __future__ import annotations

import argparse
import json
import sys

from pipeline.authoring.config import Config

HELP = "Write the JSON Schema of the config. An editor uses the schema file that the first line of a config names."
EXAMPLE = "python runner.py schema > schema/config.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the command does not have options."""


def run(_options: argparse.Namespace) -> int:
    json.dump(Config.model_json_schema(), sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0
