"""The evaluation of a split in record batches, as one Beam transform, for all models and labels in one pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow_model_analysis as tfma

from components.compat.tfma import evaluation
from components.compat.tfma.evaluation import SliceKey
from components.data.examples import Examples, FileRange
from components.data.saved_model import Columns, column_of
from components.data.weights import weights_of
from components.evaluator import binned_sums, grouped_rows, worst_mistakes
from components.evaluator.binned_sums import EMPTY, Counted, Slices
from components.evaluator.binning import Floats
from components.evaluator.columnar_metric import COLUMN, ColumnarCombiner, raise_weights
from components.evaluator.grouped_rows import GroupedRows
from components.evaluator.pseudo_anomalies import add_permuted_rows
from components.evaluator.ranking import Ranking
from components.evaluator.ranking_metrics import GroupedCombiner
from components.evaluator.saved_model import Evaluated, Model
from components.evaluator.slices import slices_of
from components.evaluator.standard_metrics import to_columnar
from components.evaluator.worst_mistakes import Search

_COUNTED, _MISTAKES, _GROUPED = "counted", "mistakes", "grouped"
_PARTS = 8
"""Number of batches whose sums are merged at a time."""
_CELLS = 1 << 20
"""Sums of batches are merged before they have many more cells, of about 40 bytes."""


@dataclass(frozen=True)
class Evaluation:
    """Specification of an evaluation; small, because Beam sends it to every worker.

    Attributes:
      eval_config: TFMA's config, serialized.
      models: Name of a model in the config → the folder of its SavedModel.
      label_columns: Columns that the preprocessing signatures read; None if they may read any column of the examples.
      mistakes: Which mistakes of the candidate to collect; None to collect none.
      group: Column whose values are the groups of grouped metrics; None if the config does not name such metrics.
      permuted: Columns that are permuted in pseudo anomalies, which are added to the rows; empty to add none.
    """

    eval_config: bytes
    models: Mapping[str, str]
    label_columns: tuple[str, ...] | None
    mistakes: Search | None = None
    group: str | None = None
    permuted: tuple[str, ...] = ()

    def config(self) -> tfma.EvalConfig:
        """Parse TFMA's config."""
        return tfma.EvalConfig.FromString(self.eval_config)


class Metrics:
    """The computations of a config, divided by what they are computed from.

    Attributes:
      parts: All computations.
      columnar: Combiners of sums over rows.
      grouped: Combiners that need all rows of a group together.
      row_by_row: TFMA's combiners, which take one row at a time; None if the config does not need them.
      row_by_row_names: Names of the metrics that TFMA's combiners compute.
    """

    def __init__(self, config: tfma.EvalConfig) -> None:
        self.parts = evaluation.computations(to_columnar(config))
        combiners = [computation.combiner for computation in self.parts.combined]
        self.columnar = [combiner for combiner in combiners if isinstance(combiner, ColumnarCombiner)]
        self.grouped = [combiner for combiner in combiners if isinstance(combiner, GroupedCombiner)]
        stock = [
            computation
            for computation in self.parts.combined
            if not isinstance(computation.combiner, (ColumnarCombiner, GroupedCombiner))
        ]
        self.row_by_row = evaluation.RowByRow(stock) if stock else None
        self.row_by_row_names = sorted({str(key.name) for computation in stock for key in computation.keys})


class Evaluate(beam.PTransform):  # type: ignore[misc]
    """Convert a PCollection of file names to the results of all labels.

    For each label the transform returns a PCollection of the results, {slice → {TFMA's key → value}}, followed by a
    PCollection of the worst mistakes, the worst first, if the evaluation collects mistakes. Both have one element.

    Args:
      examples: How the files store examples.
      evaluations: Models, metrics and slices, by label.
    """

    def __init__(self, examples: Examples, evaluations: Sequence[Evaluation]) -> None:
        super().__init__()
        self._examples, self._evaluations = examples, evaluations

    def expand(self, files: beam.PCollection) -> list[tuple[beam.PCollection, ...]]:
        """Apply the transform."""
        numbers = range(len(self._evaluations))
        tags = [f"{kind}{number}" for number in numbers for kind in (_COUNTED, _GROUPED, _MISTAKES)]
        outputs = (
            files
            | "Divide" >> beam.FlatMap(self._examples.ranges)
            | "Spread" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(CountRange(self._examples, self._evaluations)).with_outputs(*tags)
        )
        return [self._results(outputs, number) for number in numbers]

    def _results(self, outputs: Any, number: int) -> tuple[beam.PCollection, ...]:
        specification, counted = self._evaluations[number], outputs[f"{_COUNTED}{number}"]
        if specification.group is not None:
            by_part = outputs[f"{_GROUPED}{number}"] | f"Group{number}" >> beam.GroupByKey()
            group_sums = by_part | f"Rank{number}" >> beam.ParDo(CountGroups(specification))
            counted = (counted, group_sums) | f"Join{number}" >> beam.Flatten()
        results = counted | f"Combine{number}" >> beam.CombineGlobally(ResultsFn(specification))
        if specification.mistakes is None:
            return (results,)
        worst = beam.combiners.Top.Of(specification.mistakes.most, key=worst_mistakes.order)
        return results, outputs[f"{_MISTAKES}{number}"] | f"Worst{number}" >> worst


class CountRange(beam.DoFn):  # type: ignore[misc]
    """Evaluate the models on ranges of files.

    For each batch and label, yield the sums, the mistakes, and the rows by group as (part, rows), to tagged outputs.
    """

    def __init__(self, examples: Examples, evaluations: Sequence[Evaluation]) -> None:
        self._examples, self._evaluations = examples, evaluations

    def setup(self) -> None:
        """Load the models."""
        self._counters = [BatchCounter(specification) for specification in self._evaluations]

    def process(self, file_range: FileRange) -> Iterator[beam.pvalue.TaggedOutput]:
        """Yield the tagged outputs of the batches of a range."""
        most_rows = min(counter.most_rows for counter in self._counters)
        batches = itertools.chain.from_iterable(divide(batch, most_rows) for batch in self._examples.read(file_range))
        for batch in batches:
            if permuted := self._evaluations[0].permuted:
                batch = add_permuted_rows(batch, permuted)
            # The models predict all labels at once.
            outputs: dict[str, Columns] = {}
            for number, counter in enumerate(self._counters):
                evaluated = counter.evaluate(batch, outputs)
                outputs = {name: rows.outputs for name, rows in evaluated.items()}
                for kind, output in _tag_outputs(batch, evaluated, counter, self._evaluations[number].mistakes):
                    yield beam.pvalue.TaggedOutput(f"{kind}{number}", output)


def divide(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most `most_rows` rows. They are copies, since many readers ignore offsets."""
    if batch.num_rows <= most_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, most_rows):
        rows = pa.array(range(start, min(start + most_rows, batch.num_rows)))
        yield pa.RecordBatch.from_arrays([column.take(rows) for column in batch.columns], schema=batch.schema)


def _tag_outputs(
    batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], counter: BatchCounter, mistakes: Search | None
) -> Iterator[tuple[str, Any]]:
    counted, grouped = counter.count(batch, evaluated)
    yield _COUNTED, counted
    if grouped is not None:
        yield from ((_GROUPED, part) for part in grouped_rows.divide(grouped))
    if mistakes:
        worst = worst_mistakes.find_worst(batch, evaluated[counter.candidate], mistakes)
        yield from ((_MISTAKES, mistake) for mistake in worst)


class CountGroups(beam.DoFn):  # type: ignore[misc]
    """Yield the sums over groups for every part of the rows, (part, rows of all batches)."""

    def __init__(self, specification: Evaluation) -> None:
        self._specification = specification

    def setup(self) -> None:
        """Create the computations here, so that they do not have to be pickled."""
        self._metrics = Metrics(self._specification.config())

    def process(self, part: tuple[int, Iterable[GroupedRows]]) -> Iterator[Counted]:
        """Yield the sums of a part."""
        yield count_groups(self._metrics, grouped_rows.concatenate(list(part[1])))


def count_groups(metrics: Metrics, rows: GroupedRows) -> Counted:
    """Compute the sums over groups.

    Args:
      metrics: The computations.
      rows: All rows of these groups.
    """
    models = {combiner.model_name for combiner in metrics.grouped}
    rankings = {model: Ranking(rows, model) for model in models} if len(rows.groups) else {}
    tables = [EMPTY] * len(metrics.columnar) + [
        combiner.table(rankings[combiner.model_name], rows.slices) if rankings else EMPTY
        for combiner in metrics.grouped
    ]
    return Counted(rows.slices.keys, tables)


class BatchCounter:
    """Evaluate models on batches.

    Args:
      specification: Models, metrics and slices.

    Attributes:
      candidate: Name of the model that is not the baseline; "" for the only model.
      most_rows: Maximum number of rows of a batch.
    """

    def __init__(self, specification: Evaluation) -> None:
        config = specification.config()
        self._metrics, self._group = Metrics(config), specification.group
        self._specs = list(config.slicing_specs)
        self._has_baseline = len(config.model_specs) > 1
        self._weight = config.model_specs[0].example_weight_key
        specs = {spec.name if self._has_baseline else "": spec for spec in config.model_specs}
        self._models = {
            name: Model(specification.models[spec.name], spec, specification.label_columns)
            for name, spec in specs.items()
        }
        self.most_rows = min(model.most_rows for model in self._models.values())
        self.candidate = next(name for name, spec in specs.items() if not spec.is_baseline)

    def evaluate(self, batch: pa.RecordBatch, outputs: Mapping[str, Columns]) -> dict[str, Evaluated]:
        """Compute the labels and predictions of all models, by name; "" for the only model.

        Args:
          batch: The rows.
          outputs: Name of a model → its predictions for the rows, if they were computed before.

        Raises:
          InputError: A row does not have a label.
        """
        evaluated = {name: model.evaluate(batch, outputs.get(name)) for name, model in self._models.items()}
        columns = {name for metric in self._metrics.columnar for name in metric.columns}
        if not columns:
            return evaluated
        return {name: rows.add_columns(batch, columns, COLUMN) for name, rows in evaluated.items()}

    def count(self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated]) -> tuple[Counted, GroupedRows | None]:
        """Compute the sums of a batch from labels and predictions, and its rows by group; None without a group.

        Args:
          batch: The rows, with the columns of slices and weights.
          evaluated: Name of a model, "" for the only model → its labels and predictions.

        Raises:
          InputError: A row does not have a weight or belongs to several groups, or slices are not text.
        """
        weights = weights_of(batch, self._weight) if self._weight else None
        slices = slices_of(batch.num_rows, lambda name: slice_column(batch, evaluated.values(), name), self._specs)
        tables = []
        for metric in self._metrics.columnar:
            rows = evaluated[metric.model_name]
            factors = None if weights is None or not metric.is_weighted else raise_weights(weights, metric.power)
            binned = metric.bins(rows.labels, rows.output(metric.output))
            tables.append(binned_sums.count(binned, slices, factors, ordered=metric.ordered))
        tables += [EMPTY] * len(self._metrics.grouped)
        counted = Counted(slices.keys, tables, self._accumulate_row_by_row(batch, evaluated, slices, weights))
        if self._group is None:
            return counted, None
        scores = {name: rows.predictions for name, rows in evaluated.items()}
        labels = evaluated[self.candidate].labels
        return counted, grouped_rows.select_grouped(batch, self._group, labels, scores, weights, slices)

    def _accumulate_row_by_row(
        self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], slices: Slices, weights: Floats | None
    ) -> dict[SliceKey, Any]:
        if self._metrics.row_by_row is None:
            return {}
        keys_by_row: list[list[SliceKey]] = [[] for _ in range(batch.num_rows)]
        for row, number in zip(slices.rows.tolist(), slices.numbers.tolist(), strict=True):
            keys_by_row[row].append(slices.keys[number])
        accumulators: dict[SliceKey, Any] = {}
        for row, keys in enumerate(keys_by_row):
            extracts = self._extracts(batch, evaluated, row)
            if weights is not None:
                extracts[tfma.constants.EXAMPLE_WEIGHTS_KEY] = weights[row : row + 1]
            self._metrics.row_by_row.add(accumulators, keys, extracts)
        return {key: self._metrics.row_by_row.merge([accumulator]) for key, accumulator in accumulators.items()}

    def _extracts(self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], row: int) -> dict[str, Any]:
        """Return a row in the form of TFMA's extractors; with a baseline, by model."""
        by_model = {
            name: (
                np.atleast_1d(rows.labels[row]),
                np.atleast_1d(rows.predictions[row]),
                {key: np.atleast_1d(value[row]) for key, value in rows.transformed.items()},
            )
            for name, rows in evaluated.items()
        }
        kinds = (tfma.constants.LABELS_KEY, tfma.constants.PREDICTIONS_KEY, tfma.constants.TRANSFORMED_FEATURES_KEY)
        extracts = {
            kind: {name: values[at] for name, values in by_model.items()} if self._has_baseline else by_model[""][at]
            for at, kind in enumerate(kinds)
        }
        features = zip(batch.schema.names, batch.columns, strict=True)
        return {
            **extracts,
            tfma.constants.FEATURES_KEY: {name: np.array(column[row].as_py() or []) for name, column in features},
        }


class ResultsFn(beam.CombineFn):  # type: ignore[misc]
    """Combine the sums of batches to the results of all slices."""

    def __init__(self, specification: Evaluation) -> None:
        self._specification = specification

    def setup(self) -> None:
        """Create the computations here, so that they do not have to be pickled."""
        self._metrics = Metrics(self._specification.config())

    def create_accumulator(self) -> list[Counted]:
        """Return the accumulator without rows."""
        return []

    def add_input(self, parts: list[Counted], counted: Counted) -> list[Counted]:
        """Add the sums of a batch, and merge several batches at a time to bound the memory."""
        parts.append(counted)
        cells = [sum(len(table.bins) for table in part.tables) for part in parts]
        # Merge once the added cells outnumber the merged ones; the amortised cost is linear.
        is_large = sum(cells[1:]) > max(_CELLS, cells[0])
        return [self._merge(parts)] if len(parts) >= _PARTS or is_large else parts

    def merge_accumulators(self, accumulators: Iterable[list[Counted]]) -> list[Counted]:
        """Merge the sums of several workers."""
        merged: list[Counted] = []
        for part in itertools.chain.from_iterable(accumulators):
            merged = self.add_input(merged, part)
        return merged

    def compact(self, parts: list[Counted]) -> list[Counted]:
        """Merge the sums before they are sent to another worker."""
        return [self._merge(parts)] if len(parts) > 1 else parts

    def extract_output(self, parts: list[Counted]) -> dict[SliceKey, evaluation.Results]:
        """Return the results of all slices."""
        if not parts:
            return {}
        counted, config = self._merge(parts), self._specification.config()
        return {
            key: evaluation.complete_results(self._combine_results(counted, number, key), self._metrics.parts, config)
            for number, key in enumerate(counted.keys)
        }

    def _combine_results(self, counted: Counted, number: int, key: SliceKey) -> evaluation.Results:
        results: evaluation.Results = {}
        combiners: list[ColumnarCombiner | GroupedCombiner] = [*self._metrics.columnar, *self._metrics.grouped]
        for table, combiner in zip(counted.tables, combiners, strict=True):
            results.update(combiner.result(table.select_slice(number)))
        if self._metrics.row_by_row is not None:
            results.update(self._metrics.row_by_row.results(counted.row_by_row[key]))
        return results

    def _merge(self, parts: list[Counted]) -> Counted:
        keys, tables = binned_sums.merge(parts)
        if self._metrics.row_by_row is None:
            return Counted(keys, tables)
        merged = {}
        for key in keys:
            # Sums over groups do not have accumulators of TFMA.
            accumulators = [part.row_by_row[key] for part in parts if key in part.row_by_row]
            if accumulators:
                merged[key] = (
                    accumulators[0] if len(accumulators) == 1 else self._metrics.row_by_row.merge(accumulators)
                )
        return Counted(keys, tables, merged)


def slice_column(batch: pa.RecordBatch, evaluated: Iterable[Evaluated], name: str) -> pa.Array:
    """Return a column to slice by, with a list of values per row.

    The models' preprocessing takes precedence over a column of the examples.
    """
    outputs = [rows.transformed[name].reshape(batch.num_rows, -1) for rows in evaluated if name in rows.transformed]
    if outputs:
        return _lists(np.concatenate(outputs, axis=1))
    return column_of(batch, name)


def _lists(values: npt.NDArray[Any]) -> pa.Array:
    rows, width = values.shape
    return pa.LargeListArray.from_arrays(np.arange(rows + 1, dtype=np.int64) * width, pa.array(values.reshape(-1)))
