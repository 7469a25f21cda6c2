"""`runner.py verify`: holds pushed versions against their manifests, byte for byte."""

from __future__ import annotations

import argparse
import sys

from components.errors import GATE, InputError
from pipeline.commands.options import add_models
from pipeline.registry.place import of_options

HELP = "Hold versions against their manifests: number, signature and every byte. Exit code 3 if one does not pass."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the versions, and --models or --config."""
    parser.add_argument("versions", type=int, nargs="*", metavar="VERSION", help="their numbers (default: all)")
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    """Verifies, and tells of each version.

    Raises:
      InputError: a version is not there.
    """
    place = of_options(options)
    numbers = options.versions or place.versions()
    # All are looked for first: a number that is mistyped is no version that was tampered with.
    for number in numbers:
        place.find(number)
    refused = 0
    for number in numbers:
        try:
            manifest = place.verify(number)
        except InputError as error:
            refused += 1
            sys.stdout.write(f"{number}: refused: {error.headline}\n")
        else:
            signed = "unsigned" if manifest.signature is None else "signed" if place.key else "signed, key not given"
            sys.stdout.write(f"{number}: as pushed; {len(manifest.files)} files, {signed}, {manifest.digest[:12]}\n")
    if not numbers:
        sys.stdout.write(f"{place.folder}: no version was pushed yet\n")
    return GATE if refused else 0
