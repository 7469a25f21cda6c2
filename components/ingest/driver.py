"""The driver of ExampleGen: TFX's file-based driver, extended to several spans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import wrappers_pb2
from tfx.components.example_gen import utils
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import standard_component_specs
from tfx.utils import io_utils, proto_utils

from components.base.errors import InputError
from components.base.files import is_remote
from components.data import file_io, object_files
from components.ingest import image_table, input_files, readers, side_files, spans
from components.ingest.config import IngestConfig, SpansConfig

_SMALL = 32 << 20
"""Maximum bytes of local files whose contents are part of the fingerprint. Reading them takes 0.1 seconds."""
EXAMPLE_GEN = "ExampleGen"
"""ID of the node."""

# TFX's part of the driver reads files through TFX's fileio.
object_files.register()


class Driver(FileBasedDriver):  # type: ignore[misc]
    """Resolves the input files of a run before its outputs are looked up in the cache.

    With one span, properties and artifact are the same as with TFX's driver, except for a longer fingerprint. With
    several spans, there is one input split per pattern and span, named after both (all-0/17). The artifact records the
    newest span and its version. The fingerprint covers all files, and also the images that a table names.
    """

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Replace patterns with {SPAN}, {VERSION} or dates by concrete patterns.

        Args:
          exec_properties: Properties `input_base`, `input_config` and optionally `range_config`, by default the newest
            span.
          pipeline_info: Not used.
          component_info: Not used.

        Returns:
          The same dict, with a new `input_config`, and with `span`, `version` and `input_fingerprint`.

        Raises:
          InputError: If the patterns do not match files, or the configured spans do not exist.
        """
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        configured = proto_utils.json_to_proto(
            exec_properties[standard_component_specs.INPUT_CONFIG_KEY], example_gen_pb2.Input()
        )
        patterns = {split.name: split.pattern for split in configured.splits}
        selected = spans.resolve(base, patterns, _read_spans(exec_properties), fileio.glob)
        has_many = len(selected.spans) > 1
        resolved = example_gen_pb2.Input(
            splits=[
                example_gen_pb2.Input.Split(name=f"{name}/{span}" if has_many else name, pattern=pattern)
                for span, span_patterns in zip(selected.spans, selected.patterns, strict=True)
                for name, pattern in span_patterns.items()
            ]
        )
        exec_properties[standard_component_specs.INPUT_CONFIG_KEY] = proto_utils.proto_to_json(resolved)
        exec_properties[utils.SPAN_PROPERTY_NAME] = selected.span
        exec_properties[utils.VERSION_PROPERTY_NAME] = selected.version
        config = self._read_config(exec_properties)
        exec_properties[utils.FINGERPRINT_PROPERTY_NAME] = fingerprint(base, resolved, config)
        return exec_properties

    def _read_config(self, exec_properties: Mapping[str, Any]) -> IngestConfig | None:
        """Return the config of the ingest, which names further files."""
        return ingest_config(exec_properties)


def fingerprint(base: str, resolved: example_gen_pb2.Input, config: IngestConfig | None) -> str:
    """Compute the fingerprint of the input files, of side tables, and of the images that tables name.

    Every line begins with TFX's fingerprint. TFX adds up sizes and times in seconds, so its fingerprint stays the same
    if files swap their names or change within a second. Therefore a digest of names, sizes, times in nanoseconds and
    the contents of small inputs follows.

    Args:
      base: The property `input_base`.
      resolved: The message `input_config` with concrete patterns.
      config: Config of the ingest. If None, side tables and images are not included.
    """
    prints = [_fingerprint_files(split.name, base, split.pattern) for split in resolved.splits]
    if config is not None:
        prints += [
            f"join:{files.field},num_files:{len(files.paths)},sha256:{_digest_files('', files.paths)}"
            for files in side_files.find(config)
        ]
    if config is not None and config.images.path_column is not None:
        prints.append(fingerprint_of_images(base, resolved, config))
    return "\n".join(prints)


def _fingerprint_files(name: str, base: str, pattern: str) -> str:
    full = file_io.join(base, pattern)
    digest = _digest_files(base, sorted(fileio.glob(full)))
    return f"{io_utils.generate_fingerprint(name, full)},sha256:{digest}"


def _digest_files(base: str, paths: Sequence[str]) -> str:
    """Return a digest of the names, sizes and times of files, and of their contents if they are small and local."""
    stats = file_io.stats(paths)
    digest = hashlib.sha256()
    for path, stat in zip(paths, stats, strict=True):
        digest.update(f"{path.removeprefix(base)}\0{stat}\n".encode(errors="surrogateescape"))
    sizes = [stat[0] for stat in stats if stat]
    if not any(map(is_remote, paths)) and len(sizes) == len(paths) and sum(sizes) <= _SMALL:
        # A copy may have another content but keep the modification time, so include the contents.
        for path in paths:
            with file_io.open_binary(path) as file:
                digest.update(file.read())
    return digest.hexdigest()


def fingerprint_of_images(base: str, resolved: example_gen_pb2.Input, config: IngestConfig) -> str:
    """Compute the last line of `fingerprint` for tables that name image files."""
    paths = [path for split in resolved.splits for path in input_files.listing(base, split.pattern)]
    return image_table.fingerprint(readers.paths_reader(config, paths), paths, config.images)


def ingest_config(exec_properties: Mapping[str, Any]) -> IngestConfig | None:
    """Read the config of the ingest from the node's parameters; return None if they do not contain it."""
    text = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not text:
        return None
    custom, section = example_gen_pb2.CustomConfig(), wrappers_pb2.StringValue()
    proto_utils.json_to_proto(text, custom)
    custom.custom_config.Unpack(section)
    return IngestConfig.model_validate_json(section.value)


def range_config(config: SpansConfig) -> range_config_pb2.RangeConfig:
    """Convert the section `data.spans` to TFX's message.

    Raises:
      InputError: If a number exceeds the message's 32 bits.
    """
    try:
        if config.end is not None:
            static = range_config_pb2.StaticRange(start_span_number=config.start, end_span_number=config.end)
            return range_config_pb2.RangeConfig(static_range=static)
        rolling = range_config_pb2.RollingRange(start_span_number=config.start, num_spans=config.latest)
        return range_config_pb2.RangeConfig(rolling_range=rolling)
    except ValueError as error:
        raise InputError(
            f"data.spans: expected numbers below {1 << 31}, received {config.model_dump(exclude_none=True)}",
            "set data.spans to smaller numbers",
        ) from error


def spans_config(message: range_config_pb2.RangeConfig) -> SpansConfig:
    """Convert TFX's message to the section `data.spans`; the inverse of `range_config`."""
    if message.HasField("static_range"):
        static = message.static_range
        return SpansConfig(start=static.start_span_number, end=static.end_span_number)
    rolling = message.rolling_range
    return SpansConfig(latest=rolling.num_spans, start=rolling.start_span_number or None)


def parameter_for_span(parameters: Mapping[str, str], span: int) -> tuple[str, str]:
    """Compute the parameter that makes ExampleGen read a span and the configured number of spans before it.

    Args:
      parameters: Current parameters of the node.
      span: Newest span to read.

    Returns:
      Name and value of the parameter.

    Raises:
      InputError: If the number is not a valid span.
    """
    if not 0 <= span < 1 << 31:
        raise InputError(f"--span: expected a number from 0 below {1 << 31}, received {span}", "set --span to a span")
    current = _read_spans(parameters)
    earliest = max(span - (current.latest or 1) + 1, current.start or 0, 0)
    message = range_config(SpansConfig(start=min(earliest, span), end=span))
    return standard_component_specs.RANGE_CONFIG_KEY, proto_utils.proto_to_json(message)


def _read_spans(exec_properties: Mapping[str, Any]) -> SpansConfig:
    text = exec_properties.get(standard_component_specs.RANGE_CONFIG_KEY)
    return spans_config(proto_utils.json_to_proto(text, range_config_pb2.RangeConfig())) if text else SpansConfig()
