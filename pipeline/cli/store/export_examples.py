"""`runner.py store export-examples RUN|ARTIFACT FOLDER`: write examples as TFRecords, which stock TFX reads."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from components.base.errors import InputError
from components.base.files import is_remote
from pipeline.cli import options as shared
from pipeline.cli.output import show, suppress_native_stderr

if TYPE_CHECKING:
    from pipeline.core.metadata.store import Artifact

HELP = "Write an Examples artifact into a folder as gzip TFRecords of tf.Examples, which any TFX component reads."
EXAMPLE = "python runner.py store export-examples latest out/examples"
_EXAMPLES = "Examples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the examples to export, the target folder and the store."""
    parser.add_argument(
        "what",
        metavar="RUN|ARTIFACT",
        help="number or folder of an artifact; or a run or `latest`, whose examples from ExampleGen are written",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a new folder")
    shared.add_store(parser)


def run(options: argparse.Namespace) -> int:
    """Write the examples. The folder appears only when it is complete.

    Raises:
      InputError: The run or artifact does not exist or does not contain tf.Examples, or the folder exists or is a URL.
      MachineError: The store or the examples cannot be read.
    """
    folder = Path(options.folder)
    if is_remote(options.folder) or folder.exists():
        received = "a URL" if is_remote(options.folder) else "one that exists"
        raise InputError(
            f"{options.folder}: expected a new folder on this machine, received {received}", "name a new folder"
        )
    examples = _find_examples(shared.open_store(options), options.what)
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with suppress_native_stderr():
        from tfx.types import standard_artifacts

        from components.data import example_artifacts

        artifact = standard_artifacts.Examples()
        artifact.uri, artifact.split_names = examples.uri, str(examples.properties["split_names"])
        if payload := examples.properties.get("payload_format"):
            artifact.set_string_custom_property("payload_format", str(payload))
        splits = example_artifacts.splits_of(artifact)
        example_artifacts.write_tfrecords(artifact, str(part), splits)
    part.rename(folder)
    show(f"{folder}: {', '.join(splits)} of artifact {examples.id}")
    return 0


def _find_examples(selection: shared.StoreSelection, reference: str) -> Artifact:
    """Return the Examples artifact with a number or a folder, or the first Examples artifact of a run.

    Raises:
      InputError: The artifact does not exist, or has another type.
    """
    name = reference.removeprefix("artifact:")
    if name.isdecimal():
        artifacts = list(selection.store.artifacts_by_id([int(name)]).values())
    else:
        artifacts = selection.store.artifacts_at(reference.rstrip("/"))
    if not artifacts and not name.isdecimal():
        artifacts = selection.store.artifacts(selection.find_run(reference).name, _EXAMPLES)
    if not artifacts or artifacts[0].type != _EXAMPLES:
        received = artifacts[0].type if artifacts else "none"
        raise InputError(
            f"{reference}: expected an artifact of type {_EXAMPLES}, received {received}",
            f"`python runner.py store artifacts --type {_EXAMPLES}` lists them",
        )
    return artifacts[0]
