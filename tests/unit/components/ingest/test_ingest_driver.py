"""ExampleGen's driver behaves as TFX's on real folders, and also supports several spans and clear errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.components.example_gen.driver import FileBasedDriver
from tfx.dsl.compiler import compiler
from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.orchestration.portable.data_types import ExecutionInfo
from tfx.proto import example_gen_pb2, range_config_pb2
from tfx.proto.orchestration.driver_output_pb2 import DriverOutput
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from components.base.errors import InputError
from components.ingest import driver
from components.ingest.config import SpansConfig
from components.ingest.driver import EXAMPLE_GEN, Driver, parameter_for_span, range_config, spans_config
from pipeline.orchestration import node as nodes


class ExampleGen(FileBasedExampleGen):
    DRIVER_CLASS = Driver


def write(base: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n" + "1\n" * number)
        os.utime(path, (1_600_000_000 + 7 * number,) * 2)


def node(base: Path, patterns: Mapping[str, str], requested: SpansConfig | None = None) -> ExampleGen:
    splits = [example_gen_pb2.Input.Split(name=name, pattern=pattern) for name, pattern in patterns.items()]
    return ExampleGen(
        input_base=str(base),
        input_config=example_gen_pb2.Input(splits=splits),
        range_config=range_config(requested) if requested else None,
        custom_executor_spec=executor_spec.BeamExecutorSpec(BaseBeamExecutor),
    ).with_id("ExampleGen")


def drive(driver: type[FileBasedDriver], example_gen: ExampleGen) -> DriverOutput:
    output = {"examples": [standard_artifacts.Examples()]}
    return driver(None).run(ExecutionInfo(exec_properties=dict(example_gen.exec_properties), output_dict=output))


def splits(output: DriverOutput) -> dict[str, str]:
    text = output.exec_properties["input_config"].string_value
    return {split.name: split.pattern for split in proto_utils.json_to_proto(text, example_gen_pb2.Input()).splits}


@pytest.mark.parametrize(
    ("names", "patterns", "requested"),
    [
        (["a.csv", "b.csv"], {"all-0": "*.csv"}, None),
        (["t/a.csv", "e/a.csv"], {"train-0": "t/*.csv", "eval-0": "e/*.csv"}, None),
        (["1/a", "2/a", "2/b", "10/a"], {"all-0": "{SPAN}/*"}, None),
        (["1/a", "2/a", "2/b", "10/a"], {"all-0": "{SPAN}/*"}, SpansConfig()),
        (["1/a", "2/a", "2/b", "10/a"], {"all-0": "{SPAN}/*"}, SpansConfig(start=2, end=2)),
        (["01/a", "02/a", "02/b"], {"all-0": "{SPAN:2}/*"}, SpansConfig(start=1, end=1)),
        (["2020-12-31/a", "2021-01-30/a"], {"all-0": "{YYYY}-{MM}-{DD}/*"}, None),
        (["2020-12-31/a", "2021-01-30/a"], {"all-0": "{YYYY}-{MM}-{DD}/*"}, SpansConfig(start=18627, end=18627)),
        (["1/v3/a", "2/v9/a", "2/v10/a", "2/v10/b"], {"all-0": "{SPAN}/v{VERSION}/*"}, None),
        (["1/v03/a", "1/v02/a", "2/v01/a"], {"all-0": "{SPAN}/v{VERSION:2}/*"}, SpansConfig(start=1, end=1)),
        (["20210130v1", "20210130v2"], {"all-0": "{YYYY}{MM}{DD}v{VERSION}"}, None),
        (
            ["t/1/1/a", "t/2/3/a", "t/2/4/a", "e/1/2/a", "e/2/4/a"],
            {"train-0": "t/{SPAN}/{VERSION}/*", "eval-0": "e/{SPAN}/{VERSION}/*"},
            None,
        ),
    ],
)
def test_properties_of_a_single_span_equal_tfxs(
    tmp_path: Path, names: list[str], patterns: dict[str, str], requested: SpansConfig | None
) -> None:
    write(tmp_path, *names)
    example_gen = node(tmp_path, patterns, requested)
    ours, stock = drive(Driver, example_gen), drive(FileBasedDriver, example_gen)
    assert "num_files:0" not in ours.exec_properties["input_fingerprint"].string_value
    for output in (ours, stock):
        artifact_fingerprint = output.output_artifacts["examples"].artifacts[0].custom_properties["input_fingerprint"]
        for value in (output.exec_properties["input_fingerprint"], artifact_fingerprint):
            value.string_value = re.sub(",sha256:[0-9a-f]{64}$", "", value.string_value, flags=re.MULTILINE)
    assert ours == stock


def test_every_span_is_a_separate_input_split(tmp_path: Path) -> None:
    write(tmp_path, "t/1/v1/a", "t/02/v3/a", "t/02/v4/a", "t/02/v4/b", "e/01/v1/a", "e/02/v4/a", "t/00/v9/a")
    patterns = {"train-0": "t/{SPAN}/v{VERSION}/*", "eval-0": "e/{SPAN}/v{VERSION}/*"}
    output = drive(Driver, node(tmp_path, patterns, SpansConfig(latest=2)))
    assert list(splits(output).items()) == [
        ("train-0/1", "t/1/v1/*"),
        ("eval-0/1", "e/01/v1/*"),
        ("train-0/2", "t/02/v4/*"),
        ("eval-0/2", "e/02/v4/*"),
    ]
    fingerprint = output.exec_properties["input_fingerprint"].string_value
    assert fingerprint.splitlines()[2].startswith(
        # The two files were written third and fourth. Each has a header of 2 bytes, and they have 2 and 3
        # rows of 2 bytes.
        f"split:train-0/2,num_files:2,total_bytes:14,xor_checksum:{1_600_000_014 ^ 1_600_000_021},"
        "sum_checksum:3200000035,sha256:"
    )
    properties = output.output_artifacts["examples"].artifacts[0].custom_properties
    assert (properties["span"].int_value, properties["version"].int_value) == (2, 4)
    assert properties["input_fingerprint"].string_value == fingerprint


def test_changed_file_of_any_span_changes_the_fingerprint(tmp_path: Path) -> None:
    write(tmp_path, "1/a", "2/a")
    example_gen = node(tmp_path, {"all-0": "{SPAN}/*"}, SpansConfig(latest=2))
    before = drive(Driver, example_gen).exec_properties["input_fingerprint"].string_value
    (tmp_path / "1" / "a").write_text("another")
    after = drive(Driver, example_gen).exec_properties["input_fingerprint"].string_value
    assert before.splitlines()[1] == after.splitlines()[1]
    assert before.splitlines()[0] != after.splitlines()[0]


@pytest.mark.parametrize("change", ["swapped", "renamed", "within_a_second", "same_time"])
def test_change_that_keeps_sizes_and_seconds_changes_the_fingerprint(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "cat" / "1.csv", tmp_path / "dog" / "1.csv"
    for path, text in ((first, "a\n1\n"), (second, "a\n2\n")):
        path.parent.mkdir()
        path.write_text(text)
        os.utime(path, ns=(1_600_000_000 * 10**9,) * 2)
    example_gen = node(tmp_path, {"all-0": "*/*.csv"})
    before, stock = (
        drive(driver_class, example_gen).exec_properties["input_fingerprint"]
        for driver_class in (Driver, FileBasedDriver)
    )
    if change == "swapped":
        first.rename(tmp_path / "moved")
        second.rename(first)
        (tmp_path / "moved").rename(second)
    elif change == "renamed":
        first.parent.rename(tmp_path / "cow")
    elif change == "within_a_second":
        # The contents of large files are not read, so treat these files as large.
        monkeypatch.setattr(driver, "_SMALL", 0)
        before = drive(Driver, example_gen).exec_properties["input_fingerprint"]
        os.utime(first, ns=(1_600_000_000 * 10**9 + 1000,) * 2)
    else:
        first.write_text("a\n3\n")
        os.utime(first, ns=(1_600_000_000 * 10**9,) * 2)
    assert drive(Driver, example_gen).exec_properties["input_fingerprint"] != before
    assert drive(FileBasedDriver, example_gen).exec_properties["input_fingerprint"] == stock, "TFX's would not change"


def test_leading_zeros_of_spans_are_preserved(tmp_path: Path) -> None:
    # TFX's driver would replace {SPAN} by 3, and 3/* does not match a file.
    write(tmp_path, "03/a")
    assert splits(drive(Driver, node(tmp_path, {"all-0": "{SPAN}/*"}))) == {"all-0": "03/*"}


def test_missing_spans_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "1/a")
    with pytest.raises(InputError, match=r"data\.spans: expected the spans 2 to 3, received 1"):
        drive(Driver, node(tmp_path, {"all-0": "{SPAN}/*"}, SpansConfig(start=2, end=3)))


def test_launcher_uses_the_resolved_spans_for_the_cache(tmp_path: Path) -> None:
    write(tmp_path, "in/1/a", "in/2/a")

    def properties(run: str, requested: SpansConfig) -> dict[str, Any]:
        graph = Pipeline(
            pipeline_name="p",
            pipeline_root=str(tmp_path / "root"),
            components=[node(tmp_path / "in", {"all-0": "{SPAN}/*"}, requested)],
            metadata_connection_config=metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db")),
        )
        loaded = nodes.load(compiler.Compiler().compile(graph).SerializeToString(), run)
        launcher = nodes.launcher_of(loaded, "ExampleGen", nodes.store_of(loaded), None, None)
        # launch() would also run the executor.
        result = launcher._prepare_execution()
        assert result.is_execution_needed
        return dict(result.execution_info.exec_properties)

    two_spans = properties("first", SpansConfig(latest=2))
    assert (two_spans["span"], two_spans["input_fingerprint"].count("\n")) == (2, 1)
    assert [split["name"] for split in json.loads(two_spans["input_config"])["splits"]] == ["all-0/1", "all-0/2"]
    assert properties("second", SpansConfig(start=1, end=1))["span"] == 1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SpansConfig(), {"rolling_range": {"num_spans": 1}}),
        (SpansConfig(latest=7), {"rolling_range": {"num_spans": 7}}),
        (SpansConfig(latest=7, start=3), {"rolling_range": {"num_spans": 7, "start_span_number": 3}}),
        (SpansConfig(start=3, end=9), {"static_range": {"start_span_number": 3, "end_span_number": 9}}),
        (SpansConfig(start=0, end=0), {"static_range": {}}),
    ],
)
def test_ranges_are_converted_to_tfx_messages_and_back(config: SpansConfig, expected: dict[str, Any]) -> None:
    message = range_config(config)
    assert proto_utils.proto_to_dict(message) == expected
    assert spans_config(message) == config


@pytest.mark.parametrize(
    ("config", "span", "expected"),
    [
        (None, 5, {"start_span_number": 5, "end_span_number": 5}),
        (SpansConfig(), 5, {"start_span_number": 5, "end_span_number": 5}),
        (SpansConfig(latest=3), 5, {"start_span_number": 3, "end_span_number": 5}),
        (SpansConfig(latest=9), 5, {"end_span_number": 5}),
        (SpansConfig(latest=9, start=2), 5, {"start_span_number": 2, "end_span_number": 5}),
        (SpansConfig(latest=9, start=8), 5, {"start_span_number": 5, "end_span_number": 5}),
        (SpansConfig(latest=3), 0, {}),
    ],
)
def test_parameter_for_a_span_preserves_the_number_of_spans(
    tmp_path: Path, config: SpansConfig | None, span: int, expected: dict[str, int]
) -> None:
    graph = Pipeline(
        pipeline_name="p", pipeline_root=str(tmp_path), components=[node(tmp_path, {"all-0": "{SPAN}/*"}, config)]
    )
    ir = compiler.Compiler().compile(graph).SerializeToString()
    name, value = parameter_for_span(nodes.text_parameters(ir, EXAMPLE_GEN), span)
    parameters = nodes.text_parameters(nodes.set_parameter(ir, EXAMPLE_GEN, name, value), EXAMPLE_GEN)
    assert {**nodes.text_parameters(ir, EXAMPLE_GEN), name: value} == parameters
    message = proto_utils.json_to_proto(parameters["range_config"], range_config_pb2.RangeConfig())
    assert proto_utils.proto_to_dict(message) == {"static_range": expected}


@pytest.mark.parametrize("span", [-1, 1 << 31])
def test_number_that_is_not_a_span_is_rejected(span: int) -> None:
    with pytest.raises(InputError, match=rf"--span: expected a number from 0 below 2147483648, received {span}"):
        parameter_for_span({}, span)


@pytest.mark.parametrize("requested", [{"latest": 1 << 31}, {"start": 1 << 31}, {"start": 0, "end": 1 << 31}])
def test_numbers_beyond_32_bits_are_rejected(requested: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"data\.spans: expected numbers below 2147483648, received \{"):
        range_config(SpansConfig(**requested))
