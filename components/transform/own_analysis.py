"""Analyze a user's preprocessing_fn with TFT, with any number of phases, on large record batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam

from components.compat import tft as compat
from components.data.examples import Examples
from components.transform import transform_graph
from components.transform.ranges import SplitRange
from components.transform.raw_batches import RawBatches


class AnalyzeOwn(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of SplitRanges to a PCollection with one WrittenGraph.

    Args:
      function: The preprocessing_fn.
      raw: RawBatches with all columns.
      examples: Examples that read the ranges.
      folder: Folder of the graph.
      temporary: Folder for TFT's intermediate results.
    """

    def __init__(
        self, function: Callable[..., Any], raw: RawBatches, examples: Examples, folder: str, temporary: str
    ) -> None:
        super().__init__()
        self._function, self._raw, self._examples = function, raw, examples
        self._folder, self._temporary = folder, temporary

    def to_runner_api_pickled(self, context: Any) -> Any:
        """Describe the transform without pickling it, because the function may not be picklable."""
        return self.to_runner_api_parameter(context)

    def expand(self, ranges: beam.PCollection) -> beam.PCollection:
        """Apply the transform. This traces the function."""
        batches = (
            ranges
            | "Ranges" >> beam.FlatMap(_file_ranges)
            | "Read" >> beam.FlatMap(self._examples.read).with_output_types(pa.RecordBatch)
        )
        compat.repair_deep_copies()
        with tft_beam.Context(temp_dir=self._temporary, use_deep_copy_optimization=True, force_tf_compat_v1=False):
            graph = (batches, self._raw.config) | "Analyze" >> tft_beam.AnalyzeDataset(self._function)
        written = graph | "WriteGraph" >> tft_beam.WriteTransformFn(self._folder)
        return written | "Written" >> beam.Map(lambda _, folder: transform_graph.identify(folder), self._folder)


def _file_ranges(element: SplitRange) -> list[Any]:
    return [element.range] if element.range else []
