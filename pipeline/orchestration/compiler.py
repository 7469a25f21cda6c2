"""Resolve the inputs of a pipeline, and compile them with its config into TFX's intermediate representation (IR)."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from components.base import recorded_config, user_code
from components.base.errors import InputError
from components.base.files import write_atomically
from components.base.node import NodeInputs, OptionalNode
from components.evaluator.node import list_code as list_evaluator_code
from components.ingest import input_files
from components.ingest.config import SAMPLING_WEIGHT
from components.ingest.input_size import estimate_local_size
from components.trainer.node import list_code as list_trainer_code
from pipeline.authoring.config import Config
from pipeline.authoring.config.examples_format import examples_format, tfrecord_readers
from pipeline.core.records import GraphNode
from pipeline.orchestration import engines

if TYPE_CHECKING:
    from pipeline.authoring.build import BuildInputs


def graph(config: Config) -> tuple[GraphNode, ...]:
    """Return the nodes of a config's pipeline in topological order."""
    return _compile(config)[1]


def write(config: Config, file: Path, root: Path | None = None) -> tuple[GraphNode, ...]:
    """Compile a config and write the pipeline to a file.

    Args:
      config: Config of the pipeline.
      file: Path of the compiled pipeline. An existing file is replaced.
      root: Root folder. Paths below it are written with `root_folder.ROOT` in its place. If None, all paths are
        absolute.

    Returns:
      Nodes of the pipeline in topological order.

    Raises:
      InputError: No input files were found, or the file cannot be written.
    """
    from pipeline.orchestration.root_folder import ir_without_root

    ir, nodes = _compile(config)
    try:
        write_atomically(file, ir if root is None else ir_without_root(ir, root))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return nodes


def compile_pipeline(config: Config, force_bless: str | None = None, input_bytes: int | None = None) -> bytes:
    """Compile a config into TFX's IR.

    The context of the run contains the config, so that it is recorded in ML Metadata.

    Args:
      config: Config of the pipeline.
      force_bless: Reason for blessing the model even if thresholds fail. If None, the thresholds decide.
      input_bytes: Size of the local input files. If None, the size is determined here.

    Returns:
      The serialized pipeline message.

    Raises:
      InputError: No input files were found.
    """
    # Imported here because these modules import TFX, and the caller must set TensorFlow's environment first.
    from tfx.dsl.compiler import compiler
    from tfx.proto.orchestration import pipeline_pb2

    from pipeline.authoring.build import build

    pipeline = build(config, resolve_inputs(config, input_bytes), force_bless)
    compiled: pipeline_pb2.Pipeline = compiler.Compiler().compile(pipeline)
    for node in compiled.nodes:
        for context in node.pipeline_node.contexts.contexts:
            if context.type.name == "pipeline_run":
                for name, part in recorded_config.parts(config.model_dump_json(by_alias=True)).items():
                    context.properties[name].field_value.string_value = part
    return bytes(compiled.SerializeToString(deterministic=True))


def resolve_inputs(config: Config, input_bytes: int | None = None, *, managed: bool = False) -> BuildInputs:
    """Find the input files, choose Beam's options, copy a curated schema and compute the digests of code.

    Args:
      config: Config of the pipeline.
      input_bytes: Size of the local input files. If None, the size is determined here.
      managed: Whether a service runs the pipeline. Its containers cannot read files of this machine, so a curated
        schema is passed as text.

    Raises:
      InputError: No input files were found, or a component of `nodes` cannot be imported.
    """
    from pipeline.authoring import own_nodes
    from pipeline.authoring.build import BuildInputs

    size = estimate_local_size(config.data) if input_bytes is None else input_bytes
    readers = tfrecord_readers(config)
    reason = f": {', '.join(readers)} reads nothing else" if readers and config.data.examples_format == "auto" else ""
    logging.info("examples are stored as %s%s", examples_format(config), reason)
    return BuildInputs(
        source=None if config.data.bigquery else input_files.find(config.data),
        schema=_read_schema(config, managed),
        beam_args=tuple(engines.beam_args(config.runtime)),
        worker_beam_args=tuple(engines.worker_args(config.runtime, size)),
        transform_code=user_code.digest(
            "components.features",
            "components.transform",
            "components.data.skew_sample",
            *config.features.list_code(),
            *_list_modules(config.features.preprocessing_fn),
        ),
        trainer_code=user_code.digest(*list_trainer_code(config)),
        tuner_code=user_code.digest(*list_trainer_code(config), "components.tuner"),
        evaluator_code=user_code.digest(*list_evaluator_code(config)),
        optional={node.name: _resolve_node(node, config) for node in config.optional_nodes()},
        own_components=own_nodes.load(config.nodes),
        managed=managed,
    )


def _compile(config: Config) -> tuple[bytes, tuple[GraphNode, ...]]:
    from pipeline.orchestration import node

    ir = compile_pipeline(config)
    return ir, node.graph(ir)


def _read_schema(config: Config, managed: bool) -> Path | str | None:
    if config.schema_.path is None:
        return None
    schema = Path(config.schema_.path)
    content = schema.read_bytes()
    if config.data.sample.label:
        content += f'\nfeature {{ name: "{SAMPLING_WEIGHT}" type: FLOAT presence {{ min_count: 1 }} }}\n'.encode()
    if managed:
        return content.decode()
    # TFX's cache compares only the path and would miss an edited schema, so the name of the copy contains a digest.
    name = f"{schema.stem}-{hashlib.sha256(content).hexdigest()[:16]}.pbtxt"
    copy = config.paths().root / "artifacts" / "curated" / name
    if not copy.exists():
        write_atomically(copy, content)
    return copy


def _resolve_node(node: OptionalNode, config: Config) -> NodeInputs:
    data = node.find_data(config)
    files = None if data is None else input_files.find(data)
    return NodeInputs(user_code.digest(*node.list_code(config)), files)


def _list_modules(function: str | None) -> tuple[str, ...]:
    return () if function is None else (user_code.module_of(function),)
