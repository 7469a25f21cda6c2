"""The component of the serving check: TFX's InfraValidator with the `serving` section as an additional parameter."""

from __future__ import annotations

from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.proto import infra_validator_pb2
from tfx.types import BaseChannel, Channel
from tfx.types.component_spec import ExecutionParameter
from tfx.types.standard_artifacts import InfraBlessing
from tfx.types.standard_component_specs import InfraValidatorSpec

from components.serving.config import ServingConfig
from components.serving.executor import PLAN, Executor


class _Spec(InfraValidatorSpec):  # type: ignore[misc]
    """TFX's specification with the `serving` section as an additional parameter."""

    PARAMETERS: ClassVar = {**InfraValidatorSpec.PARAMETERS, PLAN: ExecutionParameter(type=str)}


class InfraValidator(base_component.BaseComponent):  # type: ignore[misc]
    """The component `InfraValidator`. Its only output is `blessing`.

    Args:
      config: The `serving` section of the config.
      name: Name of the model in requests.
      model: Channel of the model to check.
      examples: Channel of raw examples. Requests are built from the split `eval`.
    """

    SPEC_CLASS = _Spec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, config: ServingConfig, name: str, *, model: BaseChannel, examples: BaseChannel) -> None:
        repository, _, tag = config.image.rpartition(":")
        platform = (
            {"kubernetes": infra_validator_pb2.KubernetesConfig()}
            if config.check == "kubernetes"
            # TFX's specification requires a platform but does not know the local server. The executor ignores it.
            else {"local_docker": infra_validator_pb2.LocalDockerConfig()}
        )
        super().__init__(
            spec=_Spec(
                model=model,
                examples=examples,
                blessing=Channel(type=InfraBlessing),
                serving_spec=infra_validator_pb2.ServingSpec(
                    model_name=name,
                    tensorflow_serving=infra_validator_pb2.TensorFlowServing(image_name=repository, tags=[tag]),
                    **platform,
                ),
                validation_spec=infra_validator_pb2.ValidationSpec(
                    # TFX must not retry, because a second attempt would hide a server that fails intermittently.
                    num_tries=1,
                    max_loading_time_seconds=config.max_loading_seconds,
                ),
                request_spec=infra_validator_pb2.RequestSpec(
                    tensorflow_serving=infra_validator_pb2.TensorFlowServingRequestSpec(),
                    split_name="eval",
                    num_examples=config.examples,
                    make_warmup=True,
                ),
                **{PLAN: config.dump_check()},
            )
        )
