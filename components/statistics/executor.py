"""The executor of StatisticsGen: one pass over the files of all splits in large record batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import statistics_pb2
from tfx import types
from tfx.components.statistics_gen import executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.types import standard_component_specs as keys
from tfx.utils import io_utils, json_utils, stats_utils

from components.base.files import is_remote, write_atomically
from components.data import example_artifacts, file_io
from components.data.example_artifacts import examples_of, splits_of
from components.statistics import images
from components.statistics.combine import ComputeStatistics


class Executor(executor.Executor):  # type: ignore[misc]
    """Computes the statistics of the splits with TFDV's combiners.

    The artifact has the same content as with TFX's executor. Quantiles differ within TFDV's tolerance. For a column
    with more than 16,384 distinct strings, the number of distinct values and the counts of the most frequent values are
    estimates.
    """

    def Do(  # noqa: N802 - TFX's name
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Compute the statistics.

        Args:
          input_dict: The `examples`, and optionally the `schema`, which becomes part of TFDV's options.
          output_dict: The `statistics`, which receive one FeatureStats.pb per split, and the files of `images` if there
            are images.
          exec_properties: TFX's properties `stats_options_json`, `exclude_splits`, `sample_rate_by_split` and
            `sharded_stats_output`.

        Raises:
          ValueError: If there is a schema both in the options and as input.
          InputError: If a column has values of several types.
          MachineError: If the examples cannot be read.
        """
        examples = artifact_utils.get_single_instance(input_dict[keys.EXAMPLES_KEY])
        options = _options(input_dict, exec_properties)
        stored = example_artifacts.format_of(examples)
        reason = _find_stock_reason(options, exec_properties)
        if stored is None or reason:
            logging.info("StatisticsGen uses TFX's executor because of %s", reason or "the examples' format")
            super().Do(input_dict, output_dict, exec_properties)
            return
        self._log_startup(input_dict, output_dict, exec_properties)
        excluded = json_utils.loads(exec_properties.get(keys.EXCLUDE_SPLITS_KEY, "null")) or []
        splits = [split for split in splits_of(examples) if split not in excluded]
        rates = _sample_rates(splits, options, exec_properties)
        statistics = artifact_utils.get_single_instance(output_dict[keys.STATISTICS_KEY])
        _describe(statistics, examples, rates)
        files = [(split, path) for split in splits for path in examples_of(examples, split).paths]
        folders = {split: artifact_utils.get_split_uri([statistics], split) for split in splits}
        for folder in folders.values():
            fileio.makedirs(folder)
        sampled = {split: rate for split, rate in rates.items() if rate < 1}
        with self._make_beam_pipeline() as pipeline:
            _ = (
                pipeline
                | "Files" >> beam.Create(files, reshuffle=False)
                | ComputeStatistics(stored, options.to_json(), sampled)
                | "Write" >> beam.Map(_write, folders)
            )
        images.write(examples.uri, folders, statistics.uri, self._make_beam_pipeline)


def _options(input_dict: Mapping[str, list[types.Artifact]], exec_properties: Mapping[str, Any]) -> tfdv.StatsOptions:
    """Return TFDV's options, with the schema of the input, if any.

    Raises:
      ValueError: If the options also contain a schema.
    """
    text = exec_properties.get(keys.STATS_OPTIONS_JSON_KEY)
    options = tfdv.StatsOptions.from_json(text) if text else tfdv.StatsOptions()
    if not input_dict.get(keys.SCHEMA_KEY):
        return options
    if options.schema:
        raise ValueError("expected a schema as input or in stats_options, received both; remove one of them")
    folder = artifact_utils.get_single_uri(input_dict[keys.SCHEMA_KEY])
    options.schema = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(folder))
    return options


def _find_stock_reason(options: tfdv.StatsOptions, exec_properties: Mapping[str, Any]) -> str | None:
    """Return the name of an option that only TFX's executor supports; None if all are supported."""
    reasons = {
        "slicing_config": options.slicing_config,
        # Only TFDV 1.16 has it.
        "experimental_slice_sqls": getattr(options, "experimental_slice_sqls", None),
        "label_feature": options.label_feature,
        "feature_allowlist": options.feature_allowlist,
        "experimental_filter_read_paths": options.experimental_filter_read_paths,
        "sharded_stats_output": exec_properties.get(keys.SHARDED_STATS_OUTPUT_KEY),
    }
    return next((name for name, value in reasons.items() if value), None)


def _sample_rates(
    splits: list[str], options: tfdv.StatsOptions, exec_properties: Mapping[str, Any]
) -> dict[str, float]:
    """Return split → share of the rows to sample."""
    by_split = json_utils.loads(exec_properties.get(keys.SAMPLE_RATE_BY_SPLIT_KEY, "null")) or {}
    for split in by_split.keys() - set(splits):
        logging.error("sample_rate_by_split: there is no split %s; its rate is ignored", split)
    return {split: by_split.get(split, options.sample_rate or 1.0) for split in splits}


def _describe(statistics: types.Artifact, examples: types.Artifact, rates: Mapping[str, float]) -> None:
    """Set the properties that TFX's executor sets."""
    statistics.split_names = artifact_utils.encode_split_names(list(rates))
    statistics.span = examples.span
    link = stats_utils.generate_stats_dashboard_link(statistics)
    statistics.set_string_custom_property(executor.STATS_DASHBOARD_LINK, link)
    statistics.set_json_value_custom_property(executor.SAMPLE_RATE_BY_SPLIT_PROPERTY_NAME, json_utils.dumps(rates))


def _write(element: tuple[str, statistics_pb2.DatasetFeatureStatisticsList], folders: Mapping[str, str]) -> None:
    split, statistics = element
    path = file_io.join(folders[split], executor.DEFAULT_FILE_NAME)
    content = statistics.SerializeToString()
    if is_remote(path):
        with file_io.create(path) as file:
            file.write(content)
    else:
        write_atomically(Path(path), content)
