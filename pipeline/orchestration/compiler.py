"""Resolves what a pipeline depends on besides its config, and compiles both into TFX's intermediate representation."""

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
from components.ingest.input_size import estimate_local_size
from components.trainer.node import list_code as list_trainer_code
from pipeline.authoring.config import Config
from pipeline.authoring.config.examples_format import examples_format, tfrecord_readers
from pipeline.core.records import GraphNode
from pipeline.orchestration import engines

if TYPE_CHECKING:
    from pipeline.authoring.build import BuildInputs


def graph(config: Config) -> tuple[GraphNode, ...]:
    """Return the nodes of a config's pipeline, each after those it depends on."""
    return _compile(config)[1]


def write(config: Config, file: Path, root: Path | None = None) -> tuple[GraphNode, ...]:
    """Write the compiled pipeline.

    Args:
      config: the config.
      file: replaced if it exists.
      root: paths below this folder begin with `root_folder.ROOT`; None: all paths are absolute.

    Returns:
      Its nodes, each after those it depends on.

    Raises:
      InputError: there are no input files, or the file cannot be written.
    """
    from pipeline.orchestration.root_folder import ir_without_root

    ir, nodes = _compile(config)
    try:
        write_atomically(file, ir if root is None else ir_without_root(ir, root))
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", "name another file") from error
    return nodes


def compile_pipeline(config: Config, force_bless: str | None = None, input_bytes: int | None = None) -> bytes:
    """Compiles a config into TFX's IR, serialized; its run context carries the config into ML Metadata.

    Args:
      config: the config.
      force_bless: the reason for blessing the model although thresholds fail; None: the thresholds decide.
      input_bytes: size of the input on this machine; None: determined here.

    Raises:
      InputError: there are no input files.
    """
    # Imported late: these import TFX, and the caller sets TensorFlow's environment first.
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
    """Find the input files, chooses Beam's options, copy a curated schema and compute the digests of code.

    Args:
      config: the config.
      input_bytes: size of the input on this machine; None: determined here.
      managed: whether a service runs the pipeline, whose containers see no file of this machine: a curated schema is
        passed as text.

    Raises:
      InputError: there are no input files, or a component of `nodes` cannot be imported.
    """
    from pipeline.authoring import own_nodes
    from pipeline.authoring.build import BuildInputs

    size = estimate_local_size(config.data) if input_bytes is None else input_bytes
    readers = tfrecord_readers(config)
    reason = f": {', '.join(readers)} reads nothing else" if readers and config.data.examples_format == "auto" else ""
    logging.info("examples are stored as %s%s", examples_format(config), reason)
    return BuildInputs(
        source=None if config.data.bigquery else input_files.find(config.data),
        schema=_schema(config, managed),
        beam_args=tuple(engines.beam_args(config.runtime)),
        worker_beam_args=tuple(engines.worker_args(config.runtime, size)),
        transform_code=user_code.digest(
            "components.features",
            "components.transform",
            "components.data.skew_sample",
            *config.features.added_modules(),
            *_module(config.features.preprocessing_fn),
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


def _schema(config: Config, managed: bool) -> Path | str | None:
    if config.schema_.path is None:
        return None
    schema = Path(config.schema_.path)
    content = schema.read_bytes()
    if managed:
        return content.decode()
    # TFX's cache compares only the path and would miss an edited schema: the copy's name is a digest of its content.
    name = f"{schema.stem}-{hashlib.sha256(content).hexdigest()[:16]}.pbtxt"
    copy = config.paths().root / "artifacts" / "curated" / name
    if not copy.exists():
        write_atomically(copy, content)
    return copy


def _resolve_node(node: OptionalNode, config: Config) -> NodeInputs:
    data = node.find_data(config)
    files = None if data is None else input_files.find(data)
    return NodeInputs(user_code.digest(*node.list_code(config)), files)


def _module(function: str | None) -> tuple[str, ...]:
    return () if function is None else (user_code.module_of(function),)
