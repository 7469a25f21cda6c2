"""ExampleGen as a node of the pipeline: TFX's own file-based one, with an executor that works on columns."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import wrappers_pb2
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.components.base import executor_spec
from tfx.proto import example_gen_pb2

from components.ingest import source
from components.ingest.config import DataConfig
from components.ingest.executor import Executor


def example_gen(config: DataConfig) -> FileBasedExampleGen:
    """The node `ExampleGen`, whose one output is `examples`.

    Fingerprint, span and version of the input are resolved by TFX's driver; the executor gets the part of the config
    that the examples depend on.

    Raises:
      InputError: there is nothing at the path.
    """
    found = source.find(config)
    section = example_gen_pb2.CustomConfig()
    section.custom_config.Pack(wrappers_pb2.StringValue(value=config.ingest(found.format).model_dump_json()))
    splits = [
        example_gen_pb2.SplitConfig.Split(name=name, hash_buckets=buckets)
        for name, buckets in config.split.buckets().items()
    ]
    return FileBasedExampleGen(
        input_base=found.base if source.is_remote(found.base) else str(Path(found.base).absolute()),
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name="single_split", pattern=found.pattern)]
        ),
        output_config=example_gen_pb2.Output(split_config=example_gen_pb2.SplitConfig(splits=splits)),
        custom_config=section,
        custom_executor_spec=executor_spec.BeamExecutorSpec(Executor),
    ).with_id("ExampleGen")
