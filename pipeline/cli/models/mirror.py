"""`runner.py models mirror`: copy the versions that serve from a bucket to a folder on this machine."""

from __future__ import annotations

import argparse
import sys
import time

from components.base.errors import InputError, PipelineError
from components.base.files import is_remote
from pipeline.cli.options import add_models, find_push_folder
from pipeline.registry import promotion
from pipeline.registry.mirror import mirror

HELP = (
    "Copy the versions that serve, and their stages, from a push folder in a bucket to a folder on this machine, which "
    "`serve` and TensorFlow Serving can watch. Each copy is compared with its manifest."
)
EXAMPLE = "python runner.py models mirror --models s3://bucket/models/taxi --into /srv/models/taxi --every 30"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--into", metavar="FOLDER", required=True, help="the local folder; nobody else may push to it")
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="repeat the copy at this interval until it is interrupted"
    )
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    if is_remote(options.into):
        raise InputError(f"--into: expected a folder on this machine, received {options.into}", "name a local folder")
    if options.every is not None and not options.every > 0:
        raise InputError(f"--every: expected a number above 0, received {options.every:g}", "set --every to seconds")
    push_folder = find_push_folder(options)
    shown = ""
    while True:
        try:
            described = f"{options.into}: {promotion.describe(mirror(push_folder, options.into))}\n"
        except PipelineError as error:
            if options.every is None:
                raise
            # The servers continue with the versions that they have; the store may answer next time.
            described = f"{error}\n"
        if described != shown:
            sys.stdout.write(described)
            sys.stdout.flush()
            shown = described
        if options.every is None:
            return 0
        time.sleep(options.every)
