"""The InfraValidator's executor with a public method that checks one model server."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tfx.components.infra_validator import executor
from tfx.components.infra_validator.model_server_runners.base_runner import BaseModelServerRunner

_WARM_UP_REQUESTS = 16
"""Maximum number of warm-up requests of one row. A server answers all of them whenever it loads the model, but only the
first ones are slow."""


class InfraValidatorExecutor(executor.Executor):  # type: ignore[misc]
    """TFX's InfraValidator executor, with a check that subclasses define.

    Hooks: `Do` calls the private `_ValidateWithRetry` once per serving binary. TFX's method treats every exception as
    a failure of the model, and repeats the check. A second attempt would hide a server that fails only sometimes.
    Checked with TFX 1.16 and 1.21. If the model passes, the private `_CreateWarmupModel` writes a copy of the model
    with the requests as warm-up requests. Checked with TFX 1.16.
    """

    @abstractmethod
    def validate(self, model_path: str, serving_binary: Any, spec: Any, limits: Any, requests: list[Any]) -> bool:
        """Check the model once.

        Args:
          model_path: Path of the model, `<base path>/<model name>/<version>`.
          serving_binary: TFX's serving binary, which can create a client.
          spec: TFX's ServingSpec.
          limits: TFX's ValidationSpec.
          requests: Requests to the signatures of the model, with one row per request.

        Returns:
          Whether the model passed.
        """

    @abstractmethod
    def further_warm_up_requests(self) -> list[Any]:
        """Return PredictRequests to write in addition to the requests of `validate`. It is called after `validate`."""

    def _CreateWarmupModel(  # noqa: N802 - TFX's name
        self, blessing: Any, model_path: str, warmup_requests: list[Any]
    ) -> None:
        super()._CreateWarmupModel(
            blessing, model_path, [*warmup_requests[:_WARM_UP_REQUESTS], *self.further_warm_up_requests()]
        )

    def _ValidateWithRetry(  # noqa: N802 - TFX's name
        self, model_path: str, serving_binary: Any, serving_spec: Any, validation_spec: Any, requests: list[Any]
    ) -> bool:
        return self.validate(model_path, serving_binary, serving_spec, validation_spec, requests)


def container_runner(model_path: str, serving_binary: Any, spec: Any) -> BaseModelServerRunner:
    """Return TFX's runner of a model server in a Docker or Kubernetes container.

    Hook: the private `_create_model_server_runner`, which chooses the runner according to the ServingSpec. Checked with
    TFX 1.16 and 1.21.

    Args:
      model_path: Path of the model, `<base path>/<model name>/<version>`.
      serving_binary: TFX's serving binary.
      spec: TFX's ServingSpec.
    """
    return executor._create_model_server_runner(model_path, serving_binary, spec)
