"""The component ExampleGen: TFX's component with an executor that processes columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from google.protobuf import wrappers_pb2
from tfx.components.example_gen.component import FileBasedExampleGen, QueryBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from components.base.files import is_remote
from components.data import examples
from components.ingest.config import DataConfig, Format
from components.ingest.driver import EXAMPLE_GEN, Driver, range_config
from components.ingest.executor import Executor
from components.ingest.input_files import FilePatterns


def example_gen(
    config: DataConfig, source: FilePatterns | None, stored: examples.Format
) -> FileBasedExampleGen | QueryBasedExampleGen:
    """Create the component `ExampleGen`. Its only output is `examples`.

    The driver resolves fingerprint, span and version of the input. The executor receives the part of the config that
    the examples depend on.

    Args:
      config: The `data` section of the config.
      source: Patterns of the input files. If None, the rows come from a BigQuery query.
      stored: File format of the examples.
    """
    payload = example_gen_pb2.FORMAT_PARQUET if stored == "parquet" else example_gen_pb2.FORMAT_TF_EXAMPLE
    spans = range_config(config.spans) if config.spans.model_fields_set else None
    if source is None:
        return QueryBasedExampleGen(
            input_config=input_of({"all-0": config.bigquery.query if config.bigquery else ""}),
            output_config=_output(config),
            output_data_format=payload,
            custom_config=_section(config, "bigquery"),
            range_config=spans,
            custom_executor_spec=executor_spec.BeamExecutorSpec(Executor),
        ).with_id(EXAMPLE_GEN)
    node = FileBasedExampleGen(
        input_base=source.base if is_remote(source.base) else str(Path(source.base).absolute()),
        input_config=input_of(source.patterns),
        output_config=_output(config),
        output_data_format=payload,
        custom_config=_section(config, source.format),
        range_config=spans,
        custom_executor_spec=executor_spec.BeamExecutorSpec(Executor),
    ).with_id(EXAMPLE_GEN)
    node.driver_class = Driver
    return node


def input_of(patterns: Mapping[str, str]) -> example_gen_pb2.Input:
    """Convert patterns by name to TFX's message; see `FilePatterns`."""
    splits = [example_gen_pb2.Input.Split(name=name, pattern=pattern) for name, pattern in patterns.items()]
    return example_gen_pb2.Input(splits=splits)


def _output(config: DataConfig) -> example_gen_pb2.Output:
    """Return the splits as TFX's message. TFX requires hash buckets, which our executor does not use."""
    splits = [
        example_gen_pb2.SplitConfig.Split(name=name, hash_buckets=part if isinstance(part, int) else 1)
        for name, part in config.split.parts().items()
    ]
    return example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=splits))


def _section(config: DataConfig, format_: Format) -> example_gen_pb2.CustomConfig:
    section = example_gen_pb2.CustomConfig()
    ingested = config.ingest(format_)
    if (folder := ingested.images.folder) is not None and not is_remote(folder):
        # Make the path absolute, as input_base, because a worker may run in another folder.
        images = ingested.images.model_copy(update={"folder": str(Path(folder).absolute())})
        ingested = ingested.model_copy(update={"images": images})
    section.custom_config.Pack(wrappers_pb2.StringValue(value=ingested.model_dump_json()))
    return section
