"""The files of the splits as ranges for parallel work, and the bundles of ranges that a worker processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from components.data.examples import Examples, FileRange


class SplitKey(NamedTuple):
    """A split of one of the input artifacts."""

    artifact: int
    split: str


class SplitRange(NamedTuple):
    """A range of rows of a split; `range` is None for a file without rows."""

    key: SplitKey
    path: str
    range: FileRange | None


class Ranges(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of (SplitKey, file) to one of SplitRanges, spread over the workers."""

    def __init__(self, examples: Examples) -> None:
        super().__init__()
        self._examples = examples

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        """Apply the transform."""
        return files | "Divide" >> beam.FlatMap(_divide, self._examples) | "Spread" >> beam.Reshuffle()


class BundleFn(beam.DoFn):  # type: ignore[misc]
    """Processes the ranges of a bundle in the order of the files: Beam passes them in an order that changes.

    So the result on one worker is the same each time.
    """

    def start_bundle(self) -> None:
        """Begins a bundle."""
        self._elements: list[SplitRange] = []
        self._side_input: Any = None

    def process(self, element: SplitRange, side_input: Any = None) -> None:
        """Keep a range for the end of the bundle; all ranges have the same side input."""
        self._elements.append(element)
        self._side_input = side_input

    def finish_bundle(self) -> Iterator[WindowedValue | beam.pvalue.TaggedOutput]:
        """Yield the outputs of the bundle."""
        for output in self.outputs(sorted(self._elements), self._side_input) if self._elements else ():
            if isinstance(output, beam.pvalue.TaggedOutput):
                yield beam.pvalue.TaggedOutput(output.tag, _add_window(output.value))
            else:
                yield _add_window(output)

    @abstractmethod
    def outputs(self, elements: list[SplitRange], side_input: Any) -> Iterator[Any]:
        """Yield the outputs of sorted ranges; a TaggedOutput goes to another PCollection."""


def _add_window(value: Any) -> WindowedValue:
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


def _divide(file: tuple[SplitKey, str], examples: Examples) -> Iterator[SplitRange]:
    key, path = file
    ranges = examples.ranges(path)
    yield from (SplitRange(key, path, file_range) for file_range in ranges)
    if not ranges:
        yield SplitRange(key, path, None)
