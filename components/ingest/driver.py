"""ExampleGen's driver: TFX's own file-based one, for which a range may cover several spans."""

from __future__ import annotations

from typing import Any

from tfx.components.example_gen import utils
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.dsl.io import fileio
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.types import standard_component_specs
from tfx.utils import io_utils, proto_utils

from components.errors import InputError
from components.ingest import source, spans
from components.ingest.config import SpansConfig


class Driver(FileBasedDriver):  # type: ignore[misc]
    """Settles which files a run takes, before its cached outputs are looked for.

    With one span, properties and artifact are those of TFX's driver. With several there is an input split for each
    pattern and span, named such as all-0/17 after both; the artifact carries the newest span and its version, and the
    fingerprint covers all files.
    """

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], pipeline_info: Any, component_info: Any
    ) -> dict[str, Any]:
        """Puts concrete patterns in place of those with specs.

        Args:
          exec_properties: `input_base`, `input_config` and, unless the newest span is wanted, `range_config`.
          pipeline_info: not looked at.
          component_info: not looked at.

        Returns:
          The same dict, with a new `input_config`, and with `span`, `version` and `input_fingerprint`.

        Raises:
          InputError: the patterns match no files, or not those of the spans that are wanted.
        """
        base = exec_properties[standard_component_specs.INPUT_BASE_KEY]
        given = proto_utils.json_to_proto(
            exec_properties[standard_component_specs.INPUT_CONFIG_KEY], example_gen_pb2.Input()
        )
        patterns = {split.name: split.pattern for split in given.splits}
        taken = spans.resolve(base, patterns, _wanted(exec_properties), fileio.glob)
        resolved = example_gen_pb2.Input(
            splits=[
                example_gen_pb2.Input.Split(name=name if len(taken.spans) == 1 else f"{name}/{span}", pattern=pattern)
                for span, of_span in zip(taken.spans, taken.patterns, strict=True)
                for name, pattern in of_span.items()
            ]
        )
        exec_properties[standard_component_specs.INPUT_CONFIG_KEY] = proto_utils.proto_to_json(resolved)
        exec_properties[utils.SPAN_PROPERTY_NAME] = taken.span
        exec_properties[utils.VERSION_PROPERTY_NAME] = taken.version
        exec_properties[utils.FINGERPRINT_PROPERTY_NAME] = "\n".join(
            io_utils.generate_fingerprint(split.name, source.join(base, split.pattern)) for split in resolved.splits
        )
        return exec_properties


def range_config(config: SpansConfig) -> range_config_pb2.RangeConfig:
    """The part of the config as TFX's message.

    Raises:
      InputError: a number does not fit into the message's 32 bits.
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
    """What `range_config` made, turned back."""
    if message.HasField("static_range"):
        static = message.static_range
        return SpansConfig(start=static.start_span_number, end=static.end_span_number)
    rolling = message.rolling_range
    return SpansConfig(latest=rolling.num_spans, start=rolling.start_span_number or None)


def _wanted(exec_properties: dict[str, Any]) -> SpansConfig:
    text = exec_properties.get(standard_component_specs.RANGE_CONFIG_KEY)
    return spans_config(proto_utils.json_to_proto(text, range_config_pb2.RangeConfig())) if text else SpansConfig()
