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

from components.compat.tfma import columnar as compat
from components.compat.tfma import evaluation
from components.compat.tfma.columnar import Columnar, Floats
from components.compat.tfma.evaluation import SliceKey
from components.data.examples import Examples, FileRange
from components.data.saved_model import Columns, column_of
from components.data.weights import weights_of
from components.evaluator import binned_sums, grouped_rows, worst_mistakes
from components.evaluator.binned_sums import EMPTY, Counted, Slices
from components.evaluator.columnar_metric import ColumnarCombiner, raised
from components.evaluator.grouped_rows import GroupedRows
from components.evaluator.ranking import Ranking
from components.evaluator.ranking_metrics import GroupedCombiner
from components.evaluator.saved_model import Evaluated, Model
from components.evaluator.slices import slices_of
from components.evaluator.worst_mistakes import Search

_COUNTED, _MISTAKES, _GROUPED = "counted", "mistakes", "grouped"
_PARTS = 8
"""Number of batches whose sums are merged at a time."""
_CELLS = 1 << 20
"""Sums of batches are merged before they have many more cells, of about 40 bytes."""


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate; small, as Beam sends it to every worker.

    Attributes:
      eval_config: TFMA's config, serialized.
      models: name of each model in the config → the folder of its SavedModel.
      label_columns: the columns that the preprocessing signatures read; None: any of the examples' columns.
      mistakes: the mistakes of the candidate to look for; None: none.
      group: the column whose values are the groups of metrics of groups; None: there are no such metrics.
    """

    eval_config: bytes
    models: Mapping[str, str]
    label_columns: tuple[str, ...] | None
    mistakes: Search | None = None
    group: str | None = None

    def config(self) -> tfma.EvalConfig:
        """Return TFMA's config."""
        return tfma.EvalConfig.FromString(self.eval_config)


class Metrics:
    """The computations of a config, divided into those of rows, of groups, and those that only TFMA can do.

    Attributes:
      parts: all computations.
      columnar: (model, computation, whether rows are weighted) of each columnar one.
      grouped: (model, computation) of each one that is computed from all rows of a group.
      others: those of TFMA, which take one row at a time; None if there are none.
      names_of_others: the names of their results.
    """

    def __init__(self, config: tfma.EvalConfig) -> None:
        self.parts = evaluation.computations(config)
        self.columnar: list[tuple[str, Columnar, bool]] = []
        self.grouped: list[tuple[str, GroupedCombiner]] = []
        others = []
        for computation in self.parts.combined:
            if isinstance(computation.combiner, GroupedCombiner):
                self.grouped.append((compat.model_of(computation), computation.combiner))
                continue
            found = _columnar(computation)
            if found is None:
                others.append(computation)
            else:
                self.columnar.append((compat.model_of(computation), found, compat.is_weighted(computation)))
        self.others = evaluation.RowByRow(others) if others else None
        self.names_of_others = sorted({str(key.name) for computation in others for key in computation.keys})


def _columnar(computation: Any) -> Columnar | None:
    combiner = computation.combiner
    return combiner if isinstance(combiner, ColumnarCombiner) else compat.counterpart(computation)


class Evaluate(beam.PTransform):  # type: ignore[misc]
    """Converts a PCollection of file names to a list with, for each label, a PCollection of the results, {slice →
    {TFMA's key → value}}, and if mistakes are looked for, one of a list of them, the worst first. Both have one
    element.

    Args:
      examples: how the files store examples.
      of_labels: models, metrics and slices of each label.
    """

    def __init__(self, examples: Examples, of_labels: Sequence[Evaluation]) -> None:
        super().__init__()
        self._examples, self._of_labels = examples, of_labels

    def expand(self, files: beam.PCollection) -> list[tuple[beam.PCollection, ...]]:
        """Apply the transform."""
        numbers = range(len(self._of_labels))
        tags = [f"{kind}{number}" for number in numbers for kind in (_COUNTED, _GROUPED, _MISTAKES)]
        outputs = (
            files
            | "Divide" >> beam.FlatMap(self._examples.ranges)
            | "Spread" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(CountRange(self._examples, self._of_labels)).with_outputs(*tags)
        )
        return [self._results(outputs, number) for number in numbers]

    def _results(self, outputs: Any, number: int) -> tuple[beam.PCollection, ...]:
        what, counted = self._of_labels[number], outputs[f"{_COUNTED}{number}"]
        if what.group is not None:
            by_part = outputs[f"{_GROUPED}{number}"] | f"Group{number}" >> beam.GroupByKey()
            of_groups = by_part | f"Rank{number}" >> beam.ParDo(CountGroups(what))
            counted = (counted, of_groups) | f"Join{number}" >> beam.Flatten()
        results = counted | f"Combine{number}" >> beam.CombineGlobally(ResultsFn(what))
        if what.mistakes is None:
            return (results,)
        worst = beam.combiners.Top.Of(what.mistakes.most, key=worst_mistakes.order)
        return results, outputs[f"{_MISTAKES}{number}"] | f"Worst{number}" >> worst


class CountRange(beam.DoFn):  # type: ignore[misc]
    """Evaluates the models on ranges of files; yields the sums of each batch, its mistakes and its rows by group,
    (part, rows), to outputs of each label.
    """

    def __init__(self, examples: Examples, of_labels: Sequence[Evaluation]) -> None:
        self._examples, self._of_labels = examples, of_labels

    def setup(self) -> None:
        """Load the models."""
        self._counters = [BatchCounter(what) for what in self._of_labels]

    def process(self, file_range: FileRange) -> Iterator[beam.pvalue.TaggedOutput]:
        """Yield what is found in each batch of a range."""
        most_rows = min(counter.most_rows for counter in self._counters)
        for batch in itertools.chain.from_iterable(divide(each, most_rows) for each in self._examples.read(file_range)):
            # The models predict all labels at once.
            outputs: dict[str, Columns] = {}
            for number, (what, counter) in enumerate(zip(self._of_labels, self._counters, strict=True)):
                evaluated = counter.evaluate(batch, outputs)
                outputs = {name: each.outputs for name, each in evaluated.items()}
                for kind, each in _found(batch, evaluated, counter, what):
                    yield beam.pvalue.TaggedOutput(f"{kind}{number}", each)


def divide(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of at most `most_rows` rows. They are copies, since many readers ignore offsets."""
    if batch.num_rows <= most_rows:
        yield batch
        return
    for start in range(0, batch.num_rows, most_rows):
        rows = pa.array(range(start, min(start + most_rows, batch.num_rows)))
        yield pa.RecordBatch.from_arrays([column.take(rows) for column in batch.columns], schema=batch.schema)


def _found(
    batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], counter: BatchCounter, what: Evaluation
) -> Iterator[tuple[str, Any]]:
    counted, grouped = counter.count(batch, evaluated)
    yield _COUNTED, counted
    if grouped is not None:
        yield from ((_GROUPED, each) for each in grouped_rows.divided(grouped))
    if what.mistakes:
        found = worst_mistakes.of_batch(batch, evaluated[counter.candidate], what.mistakes)
        yield from ((_MISTAKES, each) for each in found)


class CountGroups(beam.DoFn):  # type: ignore[misc]
    """Yields the sums over the groups of each part of the rows, (part, rows of all batches)."""

    def __init__(self, what: Evaluation) -> None:
        self._what = what

    def setup(self) -> None:
        """Create the computations, which need not be pickled then."""
        self._metrics = Metrics(self._what.config())

    def process(self, part: tuple[int, Iterable[GroupedRows]]) -> Iterator[Counted]:
        """Yield the sums of a part."""
        yield count_groups(self._metrics, grouped_rows.concatenated(list(part[1])))


def count_groups(metrics: Metrics, rows: GroupedRows) -> Counted:
    """Compute the sums over groups.

    Args:
      metrics: the computations.
      rows: all rows of these groups.
    """
    tables = [EMPTY] * len(metrics.columnar)
    rankings = {model: Ranking(rows, model) for model in dict(metrics.grouped)} if len(rows.groups) else {}
    tables += [
        computation.table(rankings[model], rows.slices) if rankings else EMPTY for model, computation in metrics.grouped
    ]
    return Counted(rows.slices.keys, tables)


class BatchCounter:
    """Evaluates models on batches.

    Args:
      what: models, metrics and slices.

    Attributes:
      candidate: the name of the model that is not the baseline; "" for the only one.
      most_rows: the greatest number of rows of a batch.
    """

    def __init__(self, what: Evaluation) -> None:
        config = what.config()
        self._metrics, self._group = Metrics(config), what.group
        self._specs = list(config.slicing_specs)
        self._several = len(config.model_specs) > 1
        self._weight = config.model_specs[0].example_weight_key
        self._models = {
            spec.name if self._several else "": Model(what.models[spec.name], spec, what.label_columns)
            for spec in config.model_specs
        }

        self.most_rows = min(model.most_rows for model in self._models.values())
        named = {spec.name if self._several else "": spec.is_baseline for spec in config.model_specs}
        self.candidate = next(name for name, is_baseline in named.items() if not is_baseline)

    def evaluate(self, batch: pa.RecordBatch, outputs: Mapping[str, Columns]) -> dict[str, Evaluated]:
        """Return the labels and predictions of each model, by name; "" for the only one.

        Args:
          batch: the rows.
          outputs: name of each model → what it predicts for the rows, if that is known.

        Raises:
          InputError: a row has no label.
        """
        return {name: model.evaluate(batch, outputs.get(name)) for name, model in self._models.items()}

    def count(self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated]) -> tuple[Counted, GroupedRows | None]:
        """Compute the sums of a batch from labels and predictions, and its rows by group; None without a group.

        Args:
          batch: the rows, with the columns of slices and weights.
          evaluated: name of each model, "" for the only one → its labels and predictions.

        Raises:
          InputError: a row has no weight or belongs to several groups, or slices are not text.
        """
        weights = weights_of(batch, self._weight) if self._weight else None
        slices = slices_of(batch.num_rows, lambda name: slice_column(batch, evaluated.values(), name), self._specs)
        tables = []
        for model, metric, weighted in self._metrics.columnar:
            binned = metric.bins(evaluated[model].labels, evaluated[model].output(metric.output))
            factors = None if weights is None or not weighted else raised(weights, metric.power)
            tables.append(binned_sums.count(binned, slices, factors, ordered=metric.ordered))
        tables += [EMPTY] * len(self._metrics.grouped)
        counted = Counted(slices.keys, tables, self._others(batch, evaluated, slices, weights))
        if self._group is None:
            return counted, None
        scores = {name: each.predictions for name, each in evaluated.items()}
        labels = evaluated[self.candidate].labels
        return counted, grouped_rows.of_batch(batch, self._group, labels, scores, weights, slices)

    def _others(
        self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], slices: Slices, weights: Floats | None
    ) -> dict[SliceKey, Any]:
        if self._metrics.others is None:
            return {}
        of_row: list[list[SliceKey]] = [[] for _ in range(batch.num_rows)]
        for row, number in zip(slices.rows.tolist(), slices.numbers.tolist(), strict=True):
            of_row[row].append(slices.keys[number])
        accumulators: dict[SliceKey, Any] = {}
        for row, keys in enumerate(of_row):
            extracts = self._extracts(batch, evaluated, row)
            if weights is not None:
                extracts[tfma.constants.EXAMPLE_WEIGHTS_KEY] = weights[row : row + 1]
            self._metrics.others.add(accumulators, keys, extracts)
        return {key: self._metrics.others.merged([each]) for key, each in accumulators.items()}

    def _extracts(self, batch: pa.RecordBatch, evaluated: Mapping[str, Evaluated], row: int) -> dict[str, Any]:
        """Return a row as TFMA's extractors do; by model if there are several."""
        by_model = {
            name: (
                np.atleast_1d(each.labels[row]),
                np.atleast_1d(each.predictions[row]),
                {key: np.atleast_1d(value[row]) for key, value in each.transformed.items()},
            )
            for name, each in evaluated.items()
        }
        kinds = (tfma.constants.LABELS_KEY, tfma.constants.PREDICTIONS_KEY, tfma.constants.TRANSFORMED_FEATURES_KEY)
        extracts = {
            kind: {name: values[at] for name, values in by_model.items()} if self._several else by_model[""][at]
            for at, kind in enumerate(kinds)
        }
        features = zip(batch.schema.names, batch.columns, strict=True)
        return {
            **extracts,
            tfma.constants.FEATURES_KEY: {name: np.array(column[row].as_py() or []) for name, column in features},
        }


class ResultsFn(beam.CombineFn):  # type: ignore[misc]
    """Combines the sums of batches to the results of all slices."""

    def __init__(self, what: Evaluation) -> None:
        self._what = what

    def setup(self) -> None:
        """Create the computations, which need not be pickled then."""
        self._metrics = Metrics(self._what.config())

    def create_accumulator(self) -> list[Counted]:
        """Return the accumulator of no rows."""
        return []

    def add_input(self, parts: list[Counted], counted: Counted) -> list[Counted]:
        """Add the sums of a batch; some batches are merged at a time, so that the memory is bounded."""
        parts.append(counted)
        cells = [sum(len(table.bins) for table in part.tables) for part in parts]
        # Merging at least as many cells as there are makes its cost proportional to the cells that are added.
        is_large = sum(cells[1:]) > max(_CELLS, cells[0])
        return [self._merged(parts)] if len(parts) >= _PARTS or is_large else parts

    def merge_accumulators(self, accumulators: Iterable[list[Counted]]) -> list[Counted]:
        """Merge the sums of several workers."""
        merged: list[Counted] = []
        for parts in accumulators:
            for part in parts:
                merged = self.add_input(merged, part)
        return merged

    def compact(self, parts: list[Counted]) -> list[Counted]:
        """Merge the sums before they are sent to another worker."""
        return [self._merged(parts)] if len(parts) > 1 else parts

    def extract_output(self, parts: list[Counted]) -> dict[SliceKey, evaluation.Results]:
        """Return the results of all slices."""
        if not parts:
            return {}
        counted, config = self._merged(parts), self._what.config()
        return {
            key: evaluation.completed(self._combined(counted, number, key), self._metrics.parts, config)
            for number, key in enumerate(counted.keys)
        }

    def _combined(self, counted: Counted, number: int, key: SliceKey) -> evaluation.Results:
        results: evaluation.Results = {}
        columnar = (metric for _, metric, _ in self._metrics.columnar)
        grouped = (metric for _, metric in self._metrics.grouped)
        for table, metric in zip(counted.tables, (*columnar, *grouped), strict=True):
            results.update(metric.result(table.of_slice(number)))
        if self._metrics.others is not None:
            results.update(self._metrics.others.results(counted.others[key]))
        return results

    def _merged(self, parts: list[Counted]) -> Counted:
        keys, tables = binned_sums.merge(parts)
        if self._metrics.others is None:
            return Counted(keys, tables)
        others = {}
        for key in keys:
            of_slice = [part.others[key] for part in parts if key in part.others]
            # Sums over groups have none.
            if of_slice:
                others[key] = of_slice[0] if len(of_slice) == 1 else self._metrics.others.merged(of_slice)
        return Counted(keys, tables, others)


def slice_column(batch: pa.RecordBatch, evaluated: Iterable[Evaluated], name: str) -> pa.Array:
    """Return a column to slice by, a list for each row: of the models' preprocessing, otherwise of the examples."""
    outputs = [each.transformed[name].reshape(batch.num_rows, -1) for each in evaluated if name in each.transformed]
    if outputs:
        return _lists(np.concatenate(outputs, axis=1))
    return column_of(batch, name)


def _lists(values: npt.NDArray[Any]) -> pa.Array:
    rows, width = values.shape
    return pa.LargeListArray.from_arrays(np.arange(rows + 1, dtype=np.int64) * width, pa.array(values.reshape(-1)))
