"""Copy the data of TFX's penguin example: 334 real penguins as tf.Examples, in two splits.

    python -m data.penguins      to data/penguins/train.tfrecord.gz and eval.tfrecord.gz

The penguins are part of the installed TFX package, so nothing is downloaded. data/README.md describes each column.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data import tfx_files
from data.output import finish

DEFAULT_OUTPUT = Path("data/penguins")
SPLITS = ("train", "eval")
_IN_PACKAGE = "components/testdata/penguin/data/Split-{}/data_tfrecord-00000-of-00001.gz"


def find_source(split: str) -> Path:
    """Return the file of a split in the installed TFX package."""
    return tfx_files.find(_IN_PACKAGE.format(split), "the penguins")


def copy(output: Path) -> str:
    """Copy both files to the folder `output` unless they exist; return a line for the terminal."""
    files = {output / f"{split}.tfrecord.gz": find_source(split) for split in SPLITS}
    if not sum(tfx_files.copy(source, file) for file, source in files.items()):
        return f"{output}: already exists, nothing to do"
    return f"{output}: {len(files)} files, {sum(file.stat().st_size for file in files):,} bytes"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.penguins", description="Copy the penguins of TFX's example.")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help=f"folder to write to (default: {DEFAULT_OUTPUT})"
    )
    args = parser.parse_args(arguments)
    return finish(lambda: copy(args.output))


if __name__ == "__main__":
    sys.exit(main())
