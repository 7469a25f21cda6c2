"""Write the digits example's data: 1,797 real handwritten digits as PNG files, one folder per class.

    python -m data.digits        to data/digits/<class>/<index>.png

The digits are part of the installed scikit-learn, so nothing is downloaded. data/README.md describes their origin.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from components.base.errors import InputError
from data.output import atomic, finish

DEFAULT_OUTPUT = Path("data/digits")
COUNT = 1_797
"""Number of digits in scikit-learn."""


def write(output: Path) -> str:
    """Write all digits below `output` unless they exist; return a line for the terminal."""
    started = time.perf_counter()
    file_count = sum(1 for _ in output.glob("[0-9]/*.png"))
    if file_count == COUNT:
        return f"{output}: already exists, nothing to do"
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            f"{output}: expected {COUNT:,} digits, or an empty folder, received {file_count:,} digits or other files",
            "delete it, or choose another folder with --output",
        )
    with atomic(output) as part:
        size = _write_images(part)
    return f"{output}: {COUNT:,} images, {size:,} bytes, {time.perf_counter() - started:.1f} s"


def _write_images(folder: Path) -> int:
    """Write all digits as 8-bit grey PNG files of 8 by 8 pixels; return their size in bytes."""
    # Imported here because scikit-learn takes seconds, and is not needed if the digits exist.
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    # The 17 shades 0..16 are scaled to 0..255, black to white; round(grey * 16 / 255) restores them exactly.
    grey = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    size = 0
    for index, (image, digit) in enumerate(zip(grey, digits.target, strict=True)):
        path = folder / str(digit) / f"{index:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        size += path.stat().st_size
    return size


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.digits", description="Write handwritten digits as PNG files.")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help=f"folder to create (default: {DEFAULT_OUTPUT})"
    )
    args = parser.parse_args(arguments)
    return finish(lambda: write(args.output))


if __name__ == "__main__":
    sys.exit(main())
