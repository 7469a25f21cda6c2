"""Runs Transform's executor, ours or TFX's, as the launcher does, and reads what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils, standard_artifacts
from tfx.utils import json_utils

from components.data.example_artifacts import examples_of, format_of
from components.features import preprocessing
from components.features.plan import FeaturePlan
from components.transform.executor import Executor
from tests.support.runs.ingest_runs import BEAM

Examples = standard_artifacts.Examples


@dataclass(frozen=True)
class Transformed:
    """The outputs of an executor.

    Attributes:
      graph: the folder of the transform graph.
      examples: the transformed examples; several for several inputs, none if they were not asked for.
    """

    graph: Path
    examples: list[Examples]

    @property
    def output(self) -> tft.TFTransformOutput:
        """The transform graph as TFT reads it."""
        return tft.TFTransformOutput(str(self.graph))

    def files(self) -> dict[str, bytes]:
        """Return the graph's files that do not depend on how it was traced, without the sample, by relative path."""
        files = {str(path.relative_to(self.graph)): path for path in self.graph.rglob("*") if path.is_file()}
        files = {name: path for name, path in files.items() if not name.startswith("skew_sample/")}
        saved = ("saved_model.pb", "fingerprint.pb", "variables.")
        return {name: path.read_bytes() for name, path in files.items() if not Path(name).name.startswith(saved)}

    def rows(self, split: str, number: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Return the dense features of a split: name → array [rows, ...], parsed as the schema says."""
        spec, artifact = self.output.transformed_feature_spec(), self.examples[number]
        if format_of(artifact) == "tfrecord":
            folder = artifact_utils.get_split_uri([artifact], split)
            files = tf.data.Dataset.list_files(f"{folder}/*", shuffle=False)
            parsed = tf.io.parse_example(list(tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator()), spec)
            return {name: value.numpy() for name, value in parsed.items() if isinstance(value, tf.Tensor)}
        batches = self.batches(split, number)
        return {
            name: np.concatenate([_dense(batch, name, feature.shape) for batch in batches])
            for name, feature in spec.items()
            if isinstance(feature, tf.io.FixedLenFeature)
        }

    def batches(self, split: str, number: int = 0) -> list[pa.RecordBatch]:
        """Return the record batches of a split, read with the transformed schema."""
        return list(examples_of(self.examples[number], split, self.output.transformed_metadata.schema).batches())


def transform(
    raw: Examples | Sequence[Examples],
    schema: schema_pb2.Schema,
    out: Path,
    plan: FeaturePlan | str,
    executor: type[BaseBeamExecutor] = Executor,
    beam: tuple[str, ...] = BEAM,
    materialize: bool = True,
    cache: Path | None = None,
    **properties: Any,
) -> Transformed:
    """Run an executor.

    Args:
      raw: raw examples.
      schema: their schema.
      out: a new folder.
      plan: the features, or the import path of a preprocessing_fn that the component is given itself.
      executor: ours or TFX's.
      beam: Beam's options.
      materialize: whether examples are transformed.
      cache: the folder of the artifact `updated_analyzer_cache`, if there is one.
      properties: further properties of the execution.
    """
    # TFT looks for metadata in the default graph, where operations that another test ran eagerly have left theirs.
    tf.compat.v1.reset_default_graph()
    (out / "schema").mkdir(parents=True)
    (out / "schema/schema.pbtxt").write_text(text_format.MessageToString(schema))
    schema_artifact, graph, examples = standard_artifacts.Schema(), standard_artifacts.TransformGraph(), Examples()
    for artifact, name in ((schema_artifact, "schema"), (graph, "graph"), (examples, "examples")):
        artifact.uri = str(out / name)
    inputs = {"examples": list(raw) if isinstance(raw, Sequence) else [raw], "schema": [schema_artifact]}
    outputs = {"transform_graph": [graph], **({"transformed_examples": [examples]} if materialize else {})}
    if cache:
        analyzer_cache = standard_artifacts.TransformCache()
        analyzer_cache.uri = str(cache)
        outputs["updated_analyzer_cache"] = [analyzer_cache]
    declared = isinstance(plan, FeaturePlan)
    settings = {
        "preprocessing_fn": preprocessing.PATH if declared else plan,
        "custom_config": json_utils.dumps({"plan": plan.model_dump_json()} if isinstance(plan, FeaturePlan) else {}),
        "disable_statistics": 1,
        **properties,
    }
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam), tmp_dir=str(out / "tmp"), unique_id="1")
    executor(context).Do(inputs, outputs, settings)
    return Transformed(out / "graph", outputs.get("transformed_examples", []))


def _dense(batch: pa.RecordBatch, name: str, shape: list[int]) -> npt.NDArray[Any]:
    column = batch.column(batch.schema.get_field_index(name))
    assert column.null_count == 0
    values = column.flatten()
    array = np.array(values.to_pylist(), object) if pa.types.is_large_binary(values.type) else np.asarray(values)
    return array.reshape(len(column), *shape)
