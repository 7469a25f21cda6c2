"""`runner.py models verify`: compare pushed versions with their manifests, byte for byte."""

from __future__ import annotations

import argparse
import sys

from components.base.errors import GATE, InputError
from components.results.version_manifest import MODEL_SIGNATURE, is_signed
from pipeline.cli.options import add_models, find_push_folder

HELP = "Compare versions with their manifests: number, model.sig and every byte. Exit code 3 if one differs."
EXAMPLE = "python runner.py models verify 2 3"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("versions", type=int, nargs="*", metavar="VERSION", help="their numbers (default: all)")
    add_models(parser)


def run(options: argparse.Namespace) -> int:
    push_folder = find_push_folder(options)
    numbers = options.versions or push_folder.versions()
    # Find all versions first, because a mistyped number is an input error, not a failed verification.
    for number in numbers:
        push_folder.find(number)
    refused_count = 0
    for number in numbers:
        try:
            manifest = push_folder.verify(number)
        except InputError as error:
            refused_count += 1
            sys.stdout.write(f"{number}: refused: {error.headline}\n")
        else:
            signature = f"{MODEL_SIGNATURE} verified" if push_folder.public_key else "signed, key not given"
            signature = signature if is_signed(push_folder.find(number)) else "unsigned"
            sys.stdout.write(f"{number}: as pushed; {len(manifest.files)} files, {signature}, {manifest.digest[:12]}\n")
    if not numbers:
        sys.stdout.write(f"{push_folder.path}: no version was pushed yet\n")
    return GATE if refused_count else 0
