"""Write the shapes example's data: simulated JPEG files of 224 by 224 pixels in 20 classes, one folder per class.

    python -m data.shapes                        5,000 images, to data/shapes/<class>/<index>.jpg
    python -m data.shapes --images 600 --output /tmp/shapes

A class is a shape with a pattern, such as striped_star. Colours, size, place, rotation, background and noise are random
and say nothing about the class.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from components.base.errors import InputError
from data.output import atomic, finish, positive

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DEFAULT_OUTPUT = Path("data/shapes")
COUNT = 5_000
SIZE = 224
"""Height and width, in pixels."""
SHAPES = ("disc", "ring", "triangle", "square", "star")
PATTERNS = ("plain", "striped", "checked", "dotted")
CLASSES = tuple(f"{pattern}_{shape}" for shape in SHAPES for pattern in PATTERNS)

_FOLD = 2
"""The shape is drawn this many times as large, and reduced, so that its edges are smooth."""
_BLOCK = 250
"""Images of a task for another process."""
_CORNERS = {"triangle": 3, "square": 4, "star": 10}


def write(output: Path, count: int = COUNT, seed: int = 0) -> str:
    """Write the images below `output`, unless as many are there; return a line for the terminal.

    Image i is of class i % 20, and depends on the seed and i only.
    """
    started = time.perf_counter()
    found = sum(1 for _ in output.glob("*_*/*.jpg"))
    if found == count:
        return f"{output}: is there already, nothing to do"
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            f"{output}: expected {count:,} images, or nothing there, received {found:,} images or something else",
            "delete it, or choose another folder with --output",
        )
    with atomic(output) as part:
        for name in CLASSES:
            (part / name).mkdir(parents=True)
        blocks = [range(at, min(at + _BLOCK, count)) for at in range(0, count, _BLOCK)]
        with ProcessPoolExecutor() as pool:
            size = sum(pool.map(_write_images, [part] * len(blocks), blocks, [seed] * len(blocks)))
    return f"{output}: {count:,} images, {size:,} bytes, {time.perf_counter() - started:.1f} s"


def _write_images(folder: Path, indices: Sequence[int], seed: int) -> int:
    """Write some of the images; return their size in bytes."""
    # Imported only here: not needed if the images are there.
    import numpy as np
    from PIL import Image

    size = 0
    for index in indices:
        name = CLASSES[index % len(CLASSES)]
        pattern, _, shape = name.partition("_")
        path = folder / name / f"{index:05}.jpg"
        pixels = draw(shape, pattern, np.random.default_rng([seed, index]))
        Image.fromarray(pixels).save(path, quality=85)
        size += path.stat().st_size
    return size


def draw(shape: str, pattern: str, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return one image.

    Args:
      shape: of SHAPES.
      pattern: of PATTERNS.
      random: for all that says nothing about the class.

    Returns:
      Red, green and blue, [SIZE, SIZE, 3].
    """
    import numpy as np

    radius = random.uniform(50, 95)
    centre = random.uniform(radius * 0.9, SIZE - radius * 0.9, size=2)
    inside = _outline(shape, radius, centre, random.uniform(0, 2 * math.pi))
    marks = inside * _marks(pattern, radius, centre, random)
    colours = _colours(random)
    # Between two colours from one side to the other, in a random direction, with a wave over it.
    across = _along(random.uniform(0, 2 * math.pi), np.array([SIZE, SIZE]) / 2) / SIZE + 0.5
    wave = 0.15 * np.sin(_along(random.uniform(0, math.pi), centre) * random.uniform(0.02, 0.15))
    background = np.clip(across + wave, 0, 1)[..., np.newaxis]
    image = background * colours[0] + (1 - background) * colours[1]
    for mask, colour in ((inside, colours[2]), (marks, colours[3])):
        image = image + mask[..., np.newaxis] * (colour - image)
    image = image * random.uniform(0.7, 1.1) + random.normal(0, random.uniform(2, 15), image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


def _outline(shape: str, radius: float, centre: npt.NDArray[np.float64], rotation: float) -> npt.NDArray[np.float64]:
    """Return which share of each pixel is inside of a shape, [SIZE, SIZE]."""
    import numpy as np
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (SIZE * _FOLD, SIZE * _FOLD))
    pen = ImageDraw.Draw(canvas)
    (x, y), size = centre * _FOLD, radius * _FOLD
    if shape in _CORNERS:
        corners = _CORNERS[shape]
        angles = rotation + np.arange(corners) * 2 * math.pi / corners
        lengths = size * np.where((np.arange(corners) % 2 == 1) & (shape == "star"), 0.45, 1.0)
        pen.polygon(list(zip(x + lengths * np.cos(angles), y + lengths * np.sin(angles), strict=True)), fill=255)
    else:
        pen.ellipse((x - size, y - size, x + size, y + size), fill=255)
        if shape == "ring":
            hole = size * 0.5
            pen.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    return np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.BOX)) / 255.0


def _marks(
    pattern: str, radius: float, centre: npt.NDArray[np.float64], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return 1 where a pattern has its second colour, otherwise 0, [SIZE, SIZE]."""
    import numpy as np

    period = radius * random.uniform(0.28, 0.42)
    angle = random.uniform(0, 2 * math.pi)
    first, second = (_along(each, centre) / period for each in (angle, angle + math.pi / 2))
    if pattern == "striped":
        return (np.mod(first, 1) < 0.5) * 1.0
    if pattern == "checked":
        return ((np.mod(first, 1) < 0.5) ^ (np.mod(second, 1) < 0.5)) * 1.0
    if pattern == "dotted":
        return ((np.mod(first, 1) - 0.5) ** 2 + (np.mod(second, 1) - 0.5) ** 2 < 0.1) * 1.0
    return np.zeros((SIZE, SIZE))


def _along(angle: float, centre: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the place of each pixel along a direction, 0 at the centre, in pixels, [SIZE, SIZE]."""
    import numpy as np

    places = np.arange(SIZE) + 0.5
    return (places - centre[0]) * math.cos(angle) + ((places - centre[1]) * math.sin(angle))[:, np.newaxis]


def _colours(random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return two dark colours of the background, a light one of the shape and a dark one of its marks, [4, 3]."""
    import numpy as np

    low, high = np.array([[0, 140], [0, 140], [130, 255], [0, 120]]).T
    return random.uniform(low[:, np.newaxis], high[:, np.newaxis], size=(4, 3))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.shapes", description="Write simulated images as JPEG files.")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help=f"the folder to make (default: {DEFAULT_OUTPUT})"
    )
    parser.add_argument("--images", type=positive, default=COUNT, help=f"how many (default: {COUNT:,})")
    parser.add_argument("--seed", type=int, default=0, help="another one makes other images (default: 0)")
    args = parser.parse_args(arguments)
    return finish(lambda: write(args.output, args.images, args.seed))


if __name__ == "__main__":
    sys.exit(main())
