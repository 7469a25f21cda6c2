"""`runner.py schema`: write the JSON Schema of the config. Editors use it to complete and check configs."""

from __future__ import annotations

import argparse
import json
import sys

from pipeline.authoring.config.root import make_json_schema

HELP = "Write the JSON Schema of the config. An editor uses the schema file that the first line of a config names."
EXAMPLE = "python runner.py schema > schema/config.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the command does not have options."""


def run(_options: argparse.Namespace) -> int:
    schema, errors = make_json_schema()
    for error in errors:
        sys.stderr.write(f"warning: {error.headline}; {error.remedy}\n")
    json.dump(schema, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0
