"""ExampleGen's driver: TFX's file-based driver, extended to ranges of several spans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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
from components.data import file_io
from components.ingest import image_table, input_files, readers, spans
from components.ingest.config import IngestConfig, SpansConfig

_SMALL = 32 << 20
"""Bytes of local files up to which their contents are part of the fingerprint; they are read in 0.1 seconds."""
EXAMPLE_GEN = "ExampleGen"
"""The id of the node."""


class Driver(FileBasedDriver):  # type: ignore[misc]
    """Resolves the files of a run, before its outputs are looked up in the cache.

    With one span, properties and artifact equal those of TFX's driver but for the fingerprint, which is longer. With
    several there is an input split for each pattern and span, named after both (all-0/17); the artifact has the newest
    span and its version, and the fingerprint covers all files. Of a table of image files it covers the images, too.
    """

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Replace patterns that have specs by concrete patterns.

        Args:
          exec_properties: `input_base`, `input_config` and optionally `range_config`; default: the newest span.
          pipeline_info: Not used.
          component_info: Not used.

        Returns:
          The same dict, with a new `input_config`, and with `span`, `version` and `input_fingerprint`.

        Raises:
          InputError: The patterns match no files, or none of the configured spans.
        """
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        configured = proto_utils.json_to_proto(
            exec_properties[standard_component_specs.INPUT_CONFIG_KEY], example_gen_pb2.Input()
        )
        patterns = {split.name: split.pattern for split in configured.splits}
        selected = spans.resolve(base, patterns, _requested(exec_properties), fileio.glob)
        has_many = len(selected.spans) > 1
        resolved = example_gen_pb2.Input(
            splits=[
                example_gen_pb2.Input.Split(name=f"{name}/{span}" if has_many else name, pattern=pattern)
                for span, of_span in zip(selected.spans, selected.patterns, strict=True)
                for name, pattern in of_span.items()
            ]
        )
        exec_properties[standard_component_specs.INPUT_CONFIG_KEY] = proto_utils.proto_to_json(resolved)
        exec_properties[utils.SPAN_PROPERTY_NAME] = selected.span
        exec_properties[utils.VERSION_PROPERTY_NAME] = selected.version
        config = ingest_config(exec_properties)
        exec_properties[utils.FINGERPRINT_PROPERTY_NAME] = fingerprint(base, resolved, config)
        return exec_properties


def fingerprint(base: str, resolved: example_gen_pb2.Input, config: IngestConfig | None) -> str:
    """Compute the fingerprint of the input files; of a table, of its images as well.

    Each line begins as TFX's, which adds up sizes and times in seconds, and so stays the same when files swap their
    names, or change within a second. A digest of names, sizes, times in nanoseconds and small contents follows.

    Args:
      base: `input_base`.
      resolved: `input_config` without specs.
      config: The section of the config; None for an input without one.
    """
    prints = [_fingerprint_of_files(split.name, base, split.pattern) for split in resolved.splits]
    if config is not None and config.images.path_column is not None:
        prints.append(fingerprint_of_images(base, resolved, config))
    return "\n".join(prints)


def _fingerprint_of_files(name: str, base: str, pattern: str) -> str:
    full = file_io.join(base, pattern)
    paths = sorted(fileio.glob(full))
    stats = file_io.stats(paths)
    digest = hashlib.sha256()
    for path, found in zip(paths, stats, strict=True):
        digest.update(f"{path.removeprefix(base)}\0{found}\n".encode(errors="surrogateescape"))
    sizes = [found[0] for found in stats if found]
    if not is_remote(base) and len(sizes) == len(paths) and sum(sizes) <= _SMALL:
        # A copy may keep the time of a file and change its content.
        for path in paths:
            with file_io.open_binary(path) as file:
                digest.update(file.read())
    return f"{io_utils.generate_fingerprint(name, full)},sha256:{digest.hexdigest()}"


def fingerprint_of_images(base: str, resolved: example_gen_pb2.Input, config: IngestConfig) -> str:
    """Compute the last line of `fingerprint` for tables with the names of images."""
    paths = [path for split in resolved.splits for path in input_files.listing(base, split.pattern)]
    return image_table.fingerprint(readers.paths_reader(config, paths), paths, config.images)


def ingest_config(exec_properties: Mapping[str, Any]) -> IngestConfig | None:
    """Return the section of the config in the node's parameters; None if they have none."""
    text = exec_properties.get(standard_component_specs.CUSTOM_CONFIG_KEY)
    if not text:
        return None
    custom, section = example_gen_pb2.CustomConfig(), wrappers_pb2.StringValue()
    proto_utils.json_to_proto(text, custom)
    custom.custom_config.Unpack(section)
    return IngestConfig.model_validate_json(section.value)


def range_config(config: SpansConfig) -> range_config_pb2.RangeConfig:
    """Convert the section of the config to TFX's message.

    Raises:
      InputError: A number exceeds the message's 32 bits.
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
    """Convert TFX's message back to the section of the config; the inverse of `range_config`."""
    if message.HasField("static_range"):
        static = message.static_range
        return SpansConfig(start=static.start_span_number, end=static.end_span_number)
    rolling = message.rolling_range
    return SpansConfig(latest=rolling.num_spans, start=rolling.start_span_number or None)


def parameter_for_span(parameters: Mapping[str, str], span: int) -> tuple[str, str]:
    """Compute the exec parameter that makes ExampleGen read a span, and as many spans before it as configured.

    Args:
      parameters: The node's present parameters.
      span: The newest span to read.

    Returns:
      The name of the parameter and its value.

    Raises:
      InputError: The number is not a span.
    """
    if not 0 <= span < 1 << 31:
        raise InputError(f"--span: expected a number from 0 below {1 << 31}, received {span}", "set --span to a span")
    current = _requested(parameters)
    earliest = max(span - (current.latest or 1) + 1, current.start or 0, 0)
    message = range_config(SpansConfig(start=min(earliest, span), end=span))
    return standard_component_specs.RANGE_CONFIG_KEY, proto_utils.proto_to_json(message)


def _requested(exec_properties: Mapping[str, Any]) -> SpansConfig:
    text = exec_properties.get(standard_component_specs.RANGE_CONFIG_KEY)
    return spans_config(proto_utils.json_to_proto(text, range_config_pb2.RangeConfig())) if text else SpansConfig()
