"""The Pusher as a TFX component: TFX's interface, and further inputs for the manifest of a version."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import pusher_pb2
from tfx.types import BaseChannel, Channel, component_spec, standard_artifacts, standard_component_specs

from components.base.files import is_remote
from components.data.edge_models import EdgeModels
from components.pusher.executor import Executor
from components.pusher.plan import PushPlan


class PusherSpec(component_spec.ComponentSpec):  # type: ignore[misc]
    """TFX's PusherSpec with a plan, and with an evaluation, examples and edge variants as further inputs."""

    PARAMETERS: ClassVar = {
        **standard_component_specs.PusherSpec.PARAMETERS,
        "plan": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {
        **standard_component_specs.PusherSpec.INPUTS,
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation, optional=True),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples, optional=True),
        "edge": component_spec.ChannelParameter(type=EdgeModels, optional=True),
    }
    OUTPUTS: ClassVar = standard_component_specs.PusherSpec.OUTPUTS
    TYPE_ANNOTATION = standard_component_specs.PusherSpec.TYPE_ANNOTATION


class Pusher(base_component.BaseComponent):  # type: ignore[misc]
    """Pushes a blessed model to the push folder of the model servers; its output is `pushed_model`."""

    SPEC_CLASS = PusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        plan: PushPlan,
        directory: str,
        *,
        model: BaseChannel,
        model_blessing: BaseChannel | None = None,
        infra_blessing: BaseChannel | None = None,
        evaluation: BaseChannel | None = None,
        examples: BaseChannel | None = None,
        edge: BaseChannel | None = None,
    ) -> None:
        """Create the component.

        Args:
          plan: The `push` section, and the model's name in requests.
          directory: Push folder, local or remote.
          model: The model to push.
          model_blessing: The Evaluator's blessing. If None, every model is pushed.
          infra_blessing: The blessing of the serving check. If it contains a copy of the model with warm-up requests,
            the copy is pushed instead of `model`.
          evaluation: The Evaluator's results, for the manifest.
          examples: ExampleGen's output, for the manifest.
          edge: Variants for small devices. Those that passed their checks are pushed with the model.
        """
        base = directory if is_remote(directory) else str(Path(directory).absolute())
        spec = PusherSpec(
            plan=plan.model_dump_json(),
            push_destination=pusher_pb2.PushDestination(
                filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=base)
            ),
            model=model,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            evaluation=evaluation,
            examples=examples,
            edge=edge,
            pushed_model=Channel(type=standard_artifacts.PushedModel),
        )
        super().__init__(spec=spec)
