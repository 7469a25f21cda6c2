"""The Trainer's executor with a public method for the arguments of run_fn."""

from __future__ import annotations

from typing import Any

from tfx.components.trainer.executor import GenericExecutor
from tfx.components.trainer.fn_args_utils import FnArgs


class TrainerExecutor(GenericExecutor):  # type: ignore[misc]
    """TFX's Trainer executor. Subclasses override `fn_args` to change the arguments of run_fn.

    Hook: `GenericExecutor.Do` calls the private `_GetFnArgs`. TFX does not offer another way to add arguments that
    depend on the execution. Checked with TFX 1.16 and 1.21.
    """

    def fn_args(
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> FnArgs:
        """Convert the arguments of `Do` to the arguments of run_fn.

        Args:
          input_dict: Input artifacts by key.
          output_dict: Output artifacts by key.
          exec_properties: Execution properties by name.
        """
        return super()._GetFnArgs(input_dict, output_dict, exec_properties)

    def _GetFnArgs(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> FnArgs:
        return self.fn_args(input_dict, output_dict, exec_properties)
