"""`runner.py scaffold project`: write a repository with a config, own code, tests, an image, a Makefile and CI."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from pipeline.authoring import project
from pipeline.core.text import display_path

HELP = (
    "Write a repository for a pipeline: a config, a network of your own with a test, a sample of rows, a Dockerfile, a "
    "Makefile, and a CI file whose steps call the Makefile. docs/how-to/project.md describes them."
)
EXAMPLE = "python runner.py scaffold project ../churn"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="new or empty folder; its name names the pipeline")
    parser.add_argument("--name", metavar="NAME", help="name of the pipeline (default: the name of the folder)")


def run(options: argparse.Namespace) -> int:
    files = project.write(options.folder, options.name)
    sys.stdout.write("".join(f"{display_path(file)}\n" for file in files))
    sys.stdout.write(f"next: cd {shlex.quote(str(options.folder))} && make help\n")
    return 0
