"""The node EdgeExporter: variants of a blessed model for small devices, each with a verdict."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts

from components.data.edge_models import EdgeModels
from components.edge.executor import Executor
from components.edge.plan import EdgePlan


class EdgeExporterSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """Inputs, outputs and parameters of the component."""

    PARAMETERS: ClassVar = {"plan": component_spec.ExecutionParameter(type=str)}
    INPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
        "transform_graph": component_spec.ChannelParameter(type=standard_artifacts.TransformGraph),
        "transformed_examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "hyperparameters": component_spec.ChannelParameter(type=standard_artifacts.HyperParameters, optional=True),
    }
    OUTPUTS: ClassVar = {"variants": component_spec.ChannelParameter(type=EdgeModels)}


class EdgeExporter(base_component.BaseComponent):  # type: ignore[misc]
    """Converts a blessed model, compares each variant with it, and judges it; its output is `variants`."""

    SPEC_CLASS = EdgeExporterSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        plan: EdgePlan,
        *,
        model: BaseChannel,
        blessing: BaseChannel,
        transform_graph: BaseChannel,
        transformed_examples: BaseChannel,
        examples: BaseChannel,
        hyperparameters: BaseChannel | None = None,
    ) -> None:
        """Creates the component.

        Args:
          plan: the variants and the operations.
          model: the Trainer's output.
          blessing: the Evaluator's: of a model that is not blessed no variants are made.
          transform_graph: with the results of the analysis.
          transformed_examples: the splits `train` and `eval`.
          examples: raw rows, on which the exported preprocessing is checked.
          hyperparameters: those of a Tuner that the model was trained with, if a variant is trained further.
        """
        spec = EdgeExporterSpec(
            # Without defaults: an index of ML Metadata takes no long text in PostgreSQL.
            plan=plan.model_dump_json(exclude_unset=True),
            model=model,
            blessing=blessing,
            transform_graph=transform_graph,
            transformed_examples=transformed_examples,
            examples=examples,
            hyperparameters=hyperparameters,
            variants=Channel(type=EdgeModels),
        )
        super().__init__(spec=spec)
