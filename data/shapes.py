"""Write the shapes example's data: simulated JPEG files of 224 by 224 pixels in 20 classes, one folder per class.

    python -m data.shapes                        5,000 images, to data/shapes/<class>/<index>.jpg
    python -m data.shapes --images 600 --output /tmp/shapes

A class is a shape with a pattern, such as striped_star. Colours, size, place, rotation, background and noise are random
and independent of the class.
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
"""Height and width of the images, in pixels."""
SHAPES = ("disc", "ring", "triangle", "square", "star")
PATTERNS = ("plain", "striped", "checked", "dotted")
CLASSES = tuple(f"{pattern}_{shape}" for shape in SHAPES for pattern in PATTERNS)

_SCALE = 2
"""The shape is drawn larger by this factor and then reduced, so that its edges are smooth."""
_BLOCK = 250
"""Images per task of a worker process."""
_CORNERS = {"triangle": 3, "square": 4, "star": 10}


def write(output: Path, count: int = COUNT, seed: int = 0) -> str:
    """Write the images below `output`, unless it contains as many images; return a line for the terminal.

    Image i belongs to class i % 20, and depends only on the seed and i.
    """
    started = time.perf_counter()
    file_count = sum(1 for _ in output.glob("*_*/*.jpg"))
    if file_count == count:
        return f"{output}: already exists, nothing to do"
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            f"{output}: expected {count:,} images, or an empty folder, received {file_count:,} images or other files",
            "delete it, or choose another folder with --output",
        )
    with atomic(output) as part:
        for name in CLASSES:
            (part / name).mkdir(parents=True)
        blocks = [range(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
        with ProcessPoolExecutor() as pool:
            size = sum(pool.map(_write_images, [part] * len(blocks), blocks, [seed] * len(blocks)))
    return f"{output}: {count:,} images, {size:,} bytes, {time.perf_counter() - started:.1f} s"


def _write_images(folder: Path, indices: Sequence[int], seed: int) -> int:
    """Write the images with these indices; return their size in bytes."""
    # Imported here because they are not needed if the images exist.
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
    """Draw an image.

    Args:
      shape: A shape of SHAPES.
      pattern: A pattern of PATTERNS.
      random: Source of colours, size, place, rotation, background and noise.

    Returns:
      Red, green and blue, uint8, shape [SIZE, SIZE, 3].
    """
    import numpy as np

    radius = random.uniform(50, 95)
    centre = random.uniform(radius * 0.9, SIZE - radius * 0.9, size=2)
    inside = _draw_shape(shape, radius, centre, random.uniform(0, 2 * math.pi))
    marks = inside * _draw_pattern(pattern, radius, centre, random)
    colours = _draw_colours(random)
    # The background is a gradient between two colours in a random direction, plus a wave.
    across = _project_pixels(random.uniform(0, 2 * math.pi), np.array([SIZE, SIZE]) / 2) / SIZE + 0.5
    wave = 0.15 * np.sin(_project_pixels(random.uniform(0, math.pi), centre) * random.uniform(0.02, 0.15))
    background = np.clip(across + wave, 0, 1)[..., np.newaxis]
    image = background * colours[0] + (1 - background) * colours[1]
    for mask, colour in ((inside, colours[2]), (marks, colours[3])):
        image = image + mask[..., np.newaxis] * (colour - image)
    image = image * random.uniform(0.7, 1.1) + random.normal(0, random.uniform(2, 15), image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)


def _draw_shape(shape: str, radius: float, centre: npt.NDArray[np.float64], rotation: float) -> npt.NDArray[np.float64]:
    """Draw a shape; return the share of each pixel inside the shape, float64, shape [SIZE, SIZE]."""
    import numpy as np
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (SIZE * _SCALE, SIZE * _SCALE))
    pen = ImageDraw.Draw(canvas)
    (x, y), size = centre * _SCALE, radius * _SCALE
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


def _draw_pattern(
    pattern: str, radius: float, centre: npt.NDArray[np.float64], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Draw a pattern; return 1 for pixels of the pattern's second colour, otherwise 0, shape [SIZE, SIZE]."""
    import numpy as np

    period = radius * random.uniform(0.28, 0.42)
    angle = random.uniform(0, 2 * math.pi)
    first, second = (_project_pixels(direction, centre) / period for direction in (angle, angle + math.pi / 2))
    if pattern == "striped":
        return (np.mod(first, 1) < 0.5) * 1.0
    if pattern == "checked":
        return ((np.mod(first, 1) < 0.5) ^ (np.mod(second, 1) < 0.5)) * 1.0
    if pattern == "dotted":
        return ((np.mod(first, 1) - 0.5) ** 2 + (np.mod(second, 1) - 0.5) ** 2 < 0.1) * 1.0
    return np.zeros((SIZE, SIZE))


def _project_pixels(angle: float, centre: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the coordinate of each pixel along a direction, in pixels from the centre, shape [SIZE, SIZE]."""
    import numpy as np

    places = np.arange(SIZE) + 0.5
    return (places - centre[0]) * math.cos(angle) + ((places - centre[1]) * math.sin(angle))[:, np.newaxis]


def _draw_colours(random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw two dark colours for the background, a light colour for the shape and a dark colour for its pattern.

    Returns:
      Red, green and blue, float64, shape [4, 3].
    """
    import numpy as np

    low, high = np.array([[0, 140], [0, 140], [130, 255], [0, 120]]).T
    return random.uniform(low[:, np.newaxis], high[:, np.newaxis], size=(4, 3))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.shapes", description="Write simulated images as JPEG files.")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help=f"folder to create (default: {DEFAULT_OUTPUT})"
    )
    parser.add_argument("--images", type=positive, default=COUNT, help=f"number of images (default: {COUNT:,})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the images (default: 0)")
    args = parser.parse_args(arguments)
    return finish(lambda: write(args.output, args.images, args.seed))


if __name__ == "__main__":
    sys.exit(main())
