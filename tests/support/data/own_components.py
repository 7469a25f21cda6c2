"""User-defined components: two functions, a class with a constructor, and a class that is not a component.

No `from __future__ import annotations` here: TFX's decorator reads the annotations themselves.
"""

from typing import TypedDict

from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, Parameter
from tfx.dsl.component.experimental.container_component import create_container_component
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import Channel
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter
from tfx.types.standard_artifacts import Examples, ExampleStatistics, Model, String

from components.base.errors import GateError


class Size(TypedDict):
    """The result of `Measure`."""

    size: int


@component
def Measure(  # noqa: N802 - as TFX's examples are named
    statistics: InputArtifact[ExampleStatistics], text: OutputArtifact[String], word: Parameter[str] = "found"
) -> Size:
    """Write a word, and return the bytes of the training split's statistics."""
    text.value = word
    # The artifact may be in a bucket.
    with fileio.open(f"{statistics.uri}/Split-train/FeatureStats.pb", "rb") as file:
        return {"size": len(file.read())}


@component
def check_size(size: int, text: str, model: InputArtifact[Model] = None, least: Parameter[float] = 0.0):
    """Fail if there are fewer bytes than expected; with the word `rejected`, fail as a gate does."""
    if size < least:
        if text == "rejected":
            raise GateError(f"expected {least:g} bytes, received {size}", "add rows")
        raise ValueError(f"expected {least:g} bytes, received {size}")


class _Executor(base_executor.BaseExecutor):
    def Do(self, input_dict, output_dict, exec_properties):  # noqa: N802
        output_dict["report"][0].value = str(len(input_dict["examples"][0].uri))


class _Spec(ComponentSpec):
    PARAMETERS = {"limit": ExecutionParameter(type=int)}  # noqa: RUF012
    INPUTS = {"examples": ChannelParameter(type=Examples)}  # noqa: RUF012
    OUTPUTS = {"report": ChannelParameter(type=String)}  # noqa: RUF012


class Inspector(base_component.BaseComponent):
    """A component whose constructor arguments are named differently from its spec's parameters."""

    SPEC_CLASS = _Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(_Executor)

    def __init__(self, rows, limit=3):
        if limit > 9:
            raise ValueError("a limit has one digit")
        super().__init__(_Spec(examples=rows, limit=limit, report=Channel(type=String)))


container = create_container_component("Container", image="an/image:1", command=["true"])


class NoComponent:
    """A class that is not a component."""
