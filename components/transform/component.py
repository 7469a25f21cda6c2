"""Transform as a TFX component, with our executor, or with TFX's executor that also writes a sample for later nodes."""

from __future__ import annotations

from typing import Any, ClassVar

from tfx.components import Transform as TfxTransform
from tfx.dsl.components.base import executor_spec
from tfx.types import BaseChannel, component_spec
from tfx.types.standard_artifacts import Model
from tfx.types.standard_component_specs import TransformSpec

from components.transform.executor import BASE_MODEL, Executor, StockExecutor


class _Spec(component_spec.ComponentSpec):  # type: ignore[misc]
    """TFX's TransformSpec, plus the model of a warm start."""

    PARAMETERS: ClassVar = TransformSpec.PARAMETERS
    INPUTS: ClassVar = {
        **TransformSpec.INPUTS,
        BASE_MODEL: component_spec.ChannelParameter(type=Model, optional=True),
    }
    OUTPUTS: ClassVar = TransformSpec.OUTPUTS
    TYPE_ANNOTATION = TransformSpec.TYPE_ANNOTATION


class Transform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples, with the arguments and outputs of TFX's component.

    Args:
      base_model: The model whose counts the vocabularies with `keep_runs` continue. If None, nothing is remembered.
      arguments: Arguments of TFX's component.
    """

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)
    spec: Any

    def __init__(self, *, base_model: BaseChannel | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        if base_model is not None:
            # TFX's constructor creates a specification without this input.
            component: Any = self
            stock = component.spec
            channels = {**stock.inputs, **stock.outputs, BASE_MODEL: base_model}
            component.spec = _Spec(**stock.exec_properties, **channels)


class StockTransform(TfxTransform):  # type: ignore[misc]
    """Analyzes and transforms examples with TFX's executor, and the arguments and outputs of TFX's component."""

    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(StockExecutor)
