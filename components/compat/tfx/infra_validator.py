"""The InfraValidator's executor with a public method for the check of one model server."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tfx.components.infra_validator import executor
from tfx.components.infra_validator.model_server_runners.base_runner import BaseModelServerRunner


class InfraValidatorExecutor(executor.Executor):  # type: ignore[misc]
    """TFX's executor, with another check.

    Hook: `Do` calls the private `_ValidateWithRetry` once for each serving binary. TFX's method takes every exception
    for a refusal of the model, and tries again: a second attempt would hide a server that fails now and then. Checked
    with TFX 1.16 and 1.21. If the model passes, the private `_CreateWarmupModel` writes the requests beside it. Checked
    with TFX 1.16.
    """

    @abstractmethod
    def validate(self, model_path: str, serving_binary: Any, spec: Any, limits: Any, requests: list[Any]) -> bool:
        """Check the model once; return whether it passed.

        Args:
          model_path: `<base path>/<model name>/<version>`.
          serving_binary: TFX's, which has a client.
          spec: TFX's ServingSpec.
          limits: TFX's ValidationSpec.
          requests: Of the signatures of the model, one row each.
        """

    @abstractmethod
    def further_warm_up_requests(self) -> list[Any]:
        """Return PredictRequests to write besides those of `validate`, once that has returned."""

    def _CreateWarmupModel(  # noqa: N802 - TFX's name
        self, blessing: Any, model_path: str, warmup_requests: list[Any]
    ) -> None:
        super()._CreateWarmupModel(blessing, model_path, [*warmup_requests, *self.further_warm_up_requests()])

    def _ValidateWithRetry(  # noqa: N802 - TFX's name
        self, model_path: str, serving_binary: Any, serving_spec: Any, validation_spec: Any, requests: list[Any]
    ) -> bool:
        return self.validate(model_path, serving_binary, serving_spec, validation_spec, requests)


def container_runner(model_path: str, serving_binary: Any, spec: Any) -> BaseModelServerRunner:
    """TFX's runner of a model server in a container of Docker or Kubernetes; see `InfraValidatorExecutor.validate`.

    Hook: only the private `_create_model_server_runner` chooses it by the ServingSpec. Checked with TFX 1.16 and 1.21.
    """
    return executor._create_model_server_runner(model_path, serving_binary, spec)
