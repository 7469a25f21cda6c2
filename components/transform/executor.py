"""The executor of Transform: one Beam pipeline over large record batches, from the analysis to the files."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import tensorflow_transform as tft
from tfx import types
from tfx.components.example_gen import utils
from tfx.components.transform import executor, executor_utils, labels
from tfx.components.util import examples_utils
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, json_utils, path_utils

from components.base.errors import InputError, errors_of_beam
from components.compat import tft as compat
from components.data import example_artifacts, file_io
from components.data.example_artifacts import examples_of
from components.data.examples import Examples, Format
from components.features import aged_vocabulary, graph_files, preprocessing
from components.features.plan import FeaturePlan
from components.transform import graph_sample, numpy_check
from components.transform.analysis_cache import AnalysisCache
from components.transform.apply import ApplyGraph, Rows
from components.transform.declared_analysis import AnalyzeDeclared, Declaration
from components.transform.own_analysis import AnalyzeOwn
from components.transform.ranges import Ranges, SplitKey
from components.transform.raw_batches import RawBatches

BASE_MODEL = "base_model"
"""Name of the input with the model of a warm start, which contains the counts of vocabularies that are remembered."""
_TEMPORARY = ".temporary"
"""Folder in the artifact of the graph for incomplete files of the workers."""
_PAYLOADS: Mapping[Format, int] = {
    "parquet": example_gen_pb2.FORMAT_PARQUET,
    "tfrecord": example_gen_pb2.FORMAT_TF_EXAMPLE,
}


class StockExecutor(executor.Executor):  # type: ignore[misc]
    """TFX's executor, which also writes the sample of `graph_sample` if the operations are declared."""

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Analyze and transform the examples; see TFX's executor for the arguments."""
        super().Do(input_dict, output_dict, exec_properties)
        task = _Task(input_dict, output_dict, exec_properties, "tfrecord")
        task.write_sample()
        task.check()


class Executor(StockExecutor):
    """Writes the transform graph and the transformed examples.

    The graph has the same vocabularies, schema and values as with TFX's executor. Transformed examples have the format
    of the raw examples, Parquet or TFRecords. Parquet files have one column per feature of the transformed schema, in
    the same order, with the types that `components.data.examples` describes.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Analyze and transform the examples.

        Args:
          input_dict: One or several artifacts `examples`, and the `schema`.
          output_dict: The `transform_graph`; optionally `transformed_examples`, and `updated_analyzer_cache`, which
            receives the states of the accumulators if there are several spans, see `analysis_cache`.
          exec_properties: Properties of TFX's executor.

        Raises:
          InputError: If the user's function failed, an operation does not accept a column's dtype, or an option needs
            TFX's executor and the examples are Parquet.
          MachineError: If the examples cannot be read.
        """
        stored = {example_artifacts.format_of(artifact) for artifact in input_dict[keys.EXAMPLES_KEY]}
        (stored_format, *more_formats) = stored
        has_one_format = stored_format is not None and not more_formats
        reason = _find_stock_reason(input_dict, exec_properties) if has_one_format else "the examples' formats"
        if stored_format is None or reason:
            if "parquet" in stored:
                raise InputError(
                    f"Transform: expected TFRecords, which TFX's executor reads, received Parquet; {reason} needs it",
                    "set data.examples_format to tfrecord",
                )
            logging.info("Transform uses TFX's executor because of %s", reason)
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        executor_utils.MatchNumberOfTransformedExamplesArtifacts(input_dict, output_dict)
        with errors_of_beam():
            self._transform(_Task(input_dict, output_dict, exec_properties, stored_format))

    def _transform(self, task: _Task) -> None:
        """Run the Beam pipeline."""
        raw = RawBatches(task.schema, None)
        fileio.makedirs(task.temporary)
        # Create the pipeline before TensorFlow starts threads, because workers may be forked from this process.
        with self._make_beam_pipeline() as pipeline:
            ranges = (
                pipeline
                | "Files" >> beam.Create(task.files(), reshuffle=False)
                | "Ranges" >> Ranges(Examples((), task.stored))
            )
            analyzed = ranges | "OfAnalyzedSplits" >> beam.Filter(_is_of, task.analyzed)
            plan = task.declared_plan()
            columns = None if plan is None else tuple(preprocessing.columns_read(plan))
            if plan is None:
                function = self._GetPreprocessingFn(task.function_inputs(), {})
                examples = Examples((), task.stored, raw.schema)
                graph = analyzed | "Analyze" >> AnalyzeOwn(function, raw, examples, task.folder, task.temporary)
            else:
                declaration = task.declare(plan)
                cache = task.cache(declaration)
                graph = analyzed | "Analyze" >> AnalyzeDeclared(declaration, task.folder, task.temporary, cache)
            if task.outputs:
                transformed = ranges | "OfTransformedSplits" >> beam.Filter(_is_of, task.transformed)
                rows = Rows(
                    task.schema.SerializeToString(),
                    columns,
                    task.stored,
                    task.temporary,
                    task.split_folders(),
                    task.folder,
                    plan.model_dump_json() if plan is not None and preprocessing.uses_target(plan) else None,
                    frozenset(task.analyzed),
                )
                _ = transformed | "Apply" >> ApplyGraph(rows, graph)
        compat.write_schema(task.schema, file_io.join(task.folder, tft.TFTransformOutput.RAW_METADATA_DIR))
        fileio.rmtree(task.temporary)
        if not task.outputs:
            task.write_sample()
        task.check()
        for feature in graph_files.hash_collisions(task.folder):
            logging.log(logging.WARNING if feature.is_high else logging.INFO, "hash collisions: %s", feature)
        for change in aged_vocabulary.read_changes(task.folder):
            logging.info("vocabulary: %s", change)
        for column in graph_files.read_unparsed_dates(task.folder):
            logging.log(logging.WARNING if column.is_high else logging.INFO, "dates: %s", column)
        task.describe_outputs()


@dataclasses.dataclass
class _Task:
    """The arguments of the executor."""

    inputs: Mapping[str, list[types.Artifact]]
    output_dict: Mapping[str, list[types.Artifact]]
    properties: Mapping[str, Any]
    stored: Format

    def __post_init__(self) -> None:
        self.examples = self.inputs[keys.EXAMPLES_KEY]
        self.outputs = self.output_dict.get(keys.TRANSFORMED_EXAMPLES_KEY) or []
        splits = executor_utils.ResolveSplitsConfig(self.properties.get(keys.SPLITS_CONFIG_KEY), self.examples)
        # TFX returns the splits of the artifacts in an unstable order.
        self.analyzed, self.transformed = (sorted(set(names)) for names in (splits.analyze, splits.transform))
        self.folder: str = artifact_utils.get_single_uri(self.output_dict[keys.TRANSFORM_GRAPH_KEY])
        self.temporary = file_io.join(self.folder, _TEMPORARY)
        schema_folder = artifact_utils.get_single_uri(self.inputs[keys.SCHEMA_KEY])
        self.schema = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(schema_folder))

    def files(self) -> list[tuple[SplitKey, str]]:
        """Return the files of all splits that are read."""
        splits = sorted({*self.analyzed, *(self.transformed if self.outputs else ())})
        return [
            (SplitKey(number, split), path)
            for number, artifact in enumerate(self.examples)
            for split in splits
            for path in examples_of(artifact, split).paths
        ]

    def declared_plan(self) -> FeaturePlan | None:
        """Return the plan of the declared operations; None if the user wrote the preprocessing_fn."""
        if self.properties.get(keys.PREPROCESSING_FN_KEY) != preprocessing.PATH:
            return None
        config = json_utils.loads(self.properties[keys.CUSTOM_CONFIG_KEY])
        plan = FeaturePlan.model_validate_json(config["plan"])
        return None if plan.features.preprocessing_fn else plan

    def declare(self, plan: FeaturePlan) -> Declaration:
        """Return the operations of a plan, and what the vocabularies that are remembered begin with."""
        declaration = Declaration(plan.model_dump_json(), self.schema.SerializeToString(), self.stored)
        if not plan.features.remembers:
            return declaration
        fileio.makedirs(file_io.join(self.folder, aged_vocabulary.FOLDER))
        [artifact, *_] = self.examples
        # Without a fingerprint, as from a component of the user, the folder of the examples identifies them.
        source = artifact.get_string_custom_property(utils.FINGERPRINT_PROPERTY_NAME) or artifact.uri
        models = self.inputs.get(BASE_MODEL) or []
        earlier = path_utils.serving_model_path(models[0].uri) if models else None
        return dataclasses.replace(declaration, earlier_model=earlier, source=source)

    def cache(self, declaration: Declaration) -> AnalysisCache | None:
        """Return the cache for the analysis; None unless later runs are likely to read the same files."""
        spans = len(self.examples) > 1 or self.examples[0].has_custom_property(example_artifacts.SPANS)
        if not spans or keys.UPDATED_ANALYZER_CACHE_KEY not in self.output_dict:
            return None
        folder = artifact_utils.get_single_uri(self.output_dict[keys.UPDATED_ANALYZER_CACHE_KEY])
        return AnalysisCache.open(folder, f"{self.properties[keys.CUSTOM_CONFIG_KEY]} {declaration.dependency()}")

    def function_inputs(self) -> dict[str, Any]:
        """Return the arguments with which TFX's executor finds the preprocessing_fn."""
        return {
            labels.MODULE_FILE: self.properties.get(keys.MODULE_FILE_KEY),
            labels.MODULE_PATH: None,
            labels.PREPROCESSING_FN: self.properties.get(keys.PREPROCESSING_FN_KEY),
            labels.CUSTOM_CONFIG: self.properties.get(keys.CUSTOM_CONFIG_KEY),
        }

    def write_sample(self) -> None:
        """Write the sample if the workers did not, the operations are declared, and the rows are tf.Examples."""
        plan = self.declared_plan()
        if plan is not None and all(map(example_artifacts.format_of, self.examples)):
            graph_sample.write(plan, self.schema, self.examples, self.transformed, self.folder)

    def check(self) -> None:
        """Compare the sample with NumPy, see `numpy_check.check`, if the operations are declared."""
        plan = self.declared_plan()
        if plan is not None:
            numpy_check.check(plan, self.folder)

    def split_folders(self) -> dict[SplitKey, str]:
        """Create the folders of the transformed splits."""
        executor_utils.SetSplitNames(self.transformed, self.outputs)
        folders = {
            SplitKey(number, split): artifact_utils.get_split_uri([artifact], split)
            for number, artifact in enumerate(self.outputs)
            for split in self.transformed
        }
        for folder in folders.values():
            fileio.makedirs(folder)
        return folders

    def describe_outputs(self) -> None:
        """Set the properties that readers look for."""
        for artifact in self.outputs:
            examples_utils.set_payload_format(artifact, _PAYLOADS[self.stored])
        for cache in self.output_dict.get(keys.UPDATED_ANALYZER_CACHE_KEY, []):
            fileio.makedirs(cache.uri)


def _is_of(element: Any, splits: list[str]) -> bool:
    return element.key.split in splits


def _find_stock_reason(input_dict: Mapping[str, Any], exec_properties: Mapping[str, Any]) -> str | None:
    """Return the name of an argument that only TFX's executor supports; None if all are supported."""
    reasons = {
        "statistics": not exec_properties.get(keys.DISABLE_STATISTICS_KEY, 0),
        "analyzer_cache": input_dict.get(keys.ANALYZER_CACHE_KEY),
        "force_tf_compat_v1": exec_properties.get(keys.FORCE_TF_COMPAT_V1_KEY),
        "save_options": exec_properties.get(keys.SAVE_OPTIONS_KEY),
        "module_path": exec_properties.get(keys.MODULE_PATH_KEY),
    }
    return next((name for name, value in reasons.items() if value), None)
