"""The transform graph of a folder: written once, opened once in each process, applied to batches of bounded size."""

from __future__ import annotations

import dataclasses
import functools
import math
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

from components.base.errors import InputError
from components.compat import tft as compat
from components.data import examples
from components.features import feature_names
from components.features.analysis import Result, constant
from components.features.column_group import Columns
from components.features.plan import FeaturePlan
from components.features.preprocessing import DeclaredOperations
from components.transform.raw_batches import RawBatches
from components.transform.raw_matrices import RawMatrices

_CALL_BYTES = 16 << 20
"""Maximum bytes of features of a fixed shape that a call of the graph computes. The graph needs about 8 times as much
memory for SparseTensors with one index per value and for matrices of float64. A limit four times as high would only
save an eighth of the time."""
_CALL_ROWS = 1 << 14
"""Maximum number of rows of a call. More rows are not faster, and intermediate tensors need more memory."""
_ITEM = {tf.int64: 8, tf.float32: 4, tf.string: 16}


@dataclasses.dataclass(frozen=True)
class DeclaredGraph:
    """The declared operations with the results of their analysis.

    Attributes:
      plan: FeaturePlan as JSON.
      results: Name of a requirement → its result.
    """

    plan: str
    results: Mapping[str, Result]

    def outputs(self, columns: Columns) -> dict[str, tf.Tensor]:
        """Compute the transformed features of a batch in the graph that is being traced.

        The columns contain `feature_names.DRAWN` if the rows are training rows, whose labels are in the results.
        """
        plan = FeaturePlan.model_validate_json(self.plan)
        constants = {name: constant(result) for name, result in self.results.items()}
        return DeclaredOperations(plan, columns).outputs(constants)


@dataclasses.dataclass(frozen=True)
class WrittenGraph:
    """A complete transform graph. The `version` distinguishes it from earlier graphs in the same folder.

    Attributes:
      declared: The operations of the graph, which transform rows faster than the graph itself, because they can read
        matrices. None if they are unknown.
    """

    folder: str
    version: str
    declared: DeclaredGraph | None = dataclasses.field(default=None, compare=False)


_functions: dict[WrittenGraph, compat.Function] = {}
"""The graph that this process wrote last, so that it need not be loaded."""


def write(
    function: compat.Function,
    specs: Mapping[str, tf.TypeSpec],
    assets: Mapping[str, str],
    folder: str,
    declared: DeclaredGraph | None = None,
) -> WrittenGraph:
    """Write a transform graph; see `compat.tft.write_transform_graph`."""
    graph = dataclasses.replace(identify(folder), declared=declared)
    _functions.clear()
    _functions[graph] = compat.write_transform_graph(function, specs, assets, folder)
    return graph


def identify(folder: str) -> WrittenGraph:
    """Return an identifier with a new version for the graph that was just written into a folder."""
    return WrittenGraph(folder, uuid.uuid4().hex)


class TransformGraph:
    """A transform graph that is applied to batches.

    Args:
      graph: Identifier of the graph.

    Attributes:
      schema: Arrow schema of transformed batches, with the columns of the transformed schema in the same order.

    Raises:
      InputError: If a feature is a RaggedTensor of several dimensions.
    """

    schema: pa.Schema

    def __init__(self, graph: WrittenGraph) -> None:
        self._graph = graph
        output = tft.TFTransformOutput(graph.folder)
        transformed = output.transformed_metadata.schema
        self._converter = compat.arrow_converter(transformed)
        self._specs = output.transformed_feature_spec()
        self.schema = examples.arrow_schema(transformed)
        if sorted(self.schema.names) != sorted(self._converter.arrow_schema().names):
            ragged = sorted(set(self._converter.arrow_schema().names) - set(self.schema.names))
            raise InputError(
                f"features.preprocessing_fn: expected dense or sparse tensors, received ragged tensors: "
                f"{', '.join(ragged)}",
                "return a dense or a sparse tensor, or set runtime.vectorised to false",
            )
        width = sum(
            _ITEM[spec.dtype] * math.prod(spec.shape)
            for spec in self._specs.values()
            if isinstance(spec, tf.io.FixedLenFeature)
        )
        self._rows = max(1, min(_CALL_ROWS, _CALL_BYTES // max(width, 1)))
        # By whether the rows are training rows with drawn folds.
        self._on_matrices: dict[bool, _OnMatrices] = {}

    @functools.cached_property
    def _function(self) -> compat.Function:
        graph = self._graph
        return _functions.pop(graph) if graph in _functions else compat.load_transform_graph(graph.folder)

    def transform(self, batches: RawBatches, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the transformed rows of a batch that was read with `batches.schema`."""
        is_drawn = feature_names.DRAWN in batches.specs
        if self._graph.declared and is_drawn not in self._on_matrices:
            self._on_matrices[is_drawn] = _OnMatrices(self._graph.declared, batches)
        on_matrices = self._on_matrices.get(is_drawn)
        for start in range(0, batch.num_rows, self._rows):
            part = batch.slice(start, self._rows)
            columns = on_matrices.transform(part) if on_matrices else None
            if columns is None:
                function = on_matrices.on_tensors if on_matrices and is_drawn else self._function
                converted = self._converter.convert(dict(function(batches.tensors(part))))
                columns = {name: self._column(converted, name) for name in self.schema.names}
            yield pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _column(self, converted: pa.RecordBatch, name: str) -> pa.Array:
        column = converted.column(converted.schema.get_field_index(name))
        if not isinstance(self._specs.get(name), tf.io.VarLenFeature):
            return column
        # Convert an empty row to a missing value, as in raw examples.
        offsets = np.asarray(column.offsets)
        empty = np.append(offsets[:-1] == offsets[1:], False)
        return pa.LargeListArray.from_arrays(pa.array(offsets, mask=empty), column.values)


class _OnMatrices:
    """Applies declared operations to matrices, and returns the features as columns that share a few matrices.

    Args:
      declared: The operations.
      batches: The raw features.
    """

    def __init__(self, declared: DeclaredGraph, batches: RawBatches) -> None:
        plan = FeaturePlan.model_validate_json(declared.plan)
        self._declared, self._specs = declared, batches.specs
        self._matrices = RawMatrices(
            batches, [feature.name for feature in batches.schema.feature], plan.features.histories
        )
        self._names: list[list[str]] = []

        def stack_outputs(columns: Columns) -> list[tf.Tensor]:
            outputs = declared.outputs(columns)
            groups: dict[tuple[Any, ...], list[str]] = {}
            for name, tensor in outputs.items():
                groups.setdefault((tensor.dtype, *tensor.shape[1:]), []).append(name)
            self._names = list(groups.values())
            return [tf.stack([outputs[name] for name in names]) for names in self._names]

        # The module holds the tables of the vocabularies.
        self._function, self._module = self._matrices.trace(stack_outputs, compat.trace)

    @functools.cached_property
    def on_tensors(self) -> compat.Function:
        """The operations as a function of tensors, for batches whose rows have several values in a column."""
        function, self._tensors_module = compat.trace(
            lambda inputs: self._declared.outputs(Columns(inputs)), [dict(self._specs)]
        )
        return function  # type: ignore[no-any-return]

    def transform(self, batch: pa.RecordBatch) -> dict[str, pa.Array] | None:
        """Return the features of a batch; None if a row has several values in a column that should have one."""
        inputs = self._matrices.pack(batch)
        if inputs is None:
            return None
        columns: dict[str, pa.Array] = {}
        for names, tensor in zip(self._names, self._function(*inputs), strict=True):
            matrix = tensor.numpy().reshape(len(names), -1)
            width = matrix.shape[1] // batch.num_rows
            offsets = pa.array(np.arange(0, matrix.shape[1] + 1, width))
            type_ = pa.large_binary() if tensor.dtype == tf.string else None
            columns |= {
                name: pa.LargeListArray.from_arrays(offsets, pa.array(values, type_))
                for name, values in zip(names, matrix, strict=True)
            }
        return columns


@functools.lru_cache(maxsize=1)
def open_graph(graph: WrittenGraph) -> TransformGraph:
    """Open a graph once per process."""
    return TransformGraph(graph)
