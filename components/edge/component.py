"""The node EdgeExporter: convert a blessed model to variants for small devices, and judge every variant."""

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
    """Converts a blessed model to variants, and compares every variant with the model; its output is `variants`."""

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
        """Create the component.

        Args:
          plan: The variants, and the operations that precede the model.
          model: The Trainer's output.
          blessing: The Evaluator's blessing. If the model is not blessed, variants are not created.
          transform_graph: Transform's graph, with the results of the analysis.
          transformed_examples: Transformed examples with the splits `train` and `eval`.
          examples: Raw examples, on which the exported preprocessing is checked.
          hyperparameters: The Tuner's output, if the model was trained with it and a variant is trained further.
        """
        spec = EdgeExporterSpec(
            # Omit defaults to keep the text short: ML Metadata indexes it, and PostgreSQL limits the size of an entry.
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
