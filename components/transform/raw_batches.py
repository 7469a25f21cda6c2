"""Raw examples as the input of the transform graph: record batches as tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import pyarrow as pa
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public.tfxio import TensorAdapter, TensorAdapterConfig, TFExampleBeamRecord

RawTensors: TypeAlias = "dict[str, tf.Tensor | tf.SparseTensor]"


class RawBatches:
    """The raw features of a schema.

    Args:
      schema: The curated or inferred schema.
      columns: The columns to read; others of variable length count as missing in every row. None: all.

    Attributes:
      specs: Feature → its type as a tensor, of all features.
      config: Of TFT, for record batches with all columns.
      schema: The columns to read, for `Examples`.
    """

    specs: Mapping[str, tf.TypeSpec]
    config: TensorAdapterConfig
    schema: schema_pb2.Schema

    def __init__(self, schema: schema_pb2.Schema, columns: Collection[str] | None) -> None:
        records = TFExampleBeamRecord(physical_format="inmem", telemetry_descriptors=["transform"], schema=schema)
        self.config = records.TensorAdapterConfig()
        self._adapter = TensorAdapter(self.config)
        self.specs = self._adapter.OriginalTypeSpecs()
        self._all = records.ArrowSchema()
        needed = set(self._all.names if columns is None else columns)
        # A feature of a fixed shape has a value in every row.
        needed |= {name for name, spec in self.specs.items() if isinstance(spec, tf.TensorSpec)}
        features = {feature.name: feature for feature in schema.feature}
        self.schema = schema_pb2.Schema(feature=[features[name] for name in self._all.names if name in needed])

    def complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch that was read with `schema`, with all columns."""
        if batch.schema.equals(self._all):
            return batch
        read = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = [
            read[field.name] if field.name in read else pa.nulls(batch.num_rows, field.type) for field in self._all
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._all)

    def tensors(self, batch: pa.RecordBatch) -> RawTensors:
        """Convert a batch that was read with `schema` to the tensors of all features."""
        tensors: RawTensors = self._adapter.ToBatchTensors(self.complete(batch), produce_eager_tensors=True)
        return tensors
