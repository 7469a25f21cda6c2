"""TFX's Tuner executor that resumes an interrupted search, and records every trial, including the failed ones."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tfx.components.tuner import executor as stock
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from components.base import user_code
from components.base.errors import InputError, MachineError
from components.compat import tfx as compat
from components.tuner import result
from components.tuner.search import PIPELINE, Search


class Executor(stock.Executor):  # type: ignore[misc]
    """Runs the search that the plan in `custom_config` describes."""

    def Do(  # noqa: N802 - TFX's name
        self, input_dict: dict[str, list[Any]], output_dict: dict[str, list[Any]], exec_properties: dict[str, Any]
    ) -> None:
        """Run all trials.

        Args:
          input_dict: `examples`, `transform_graph` and `schema`.
          output_dict: `best_hyperparameters`, and `tuner_results` with TFX's `tuner_results.json` and `trials.json`.
          exec_properties: Parameters of the Tuner.

        Raises:
          InputError: If every trial has failed, or the label cannot be learned.
          MachineError: If the process received SIGTERM.
        """
        # A resumed run must not use the trials of another plan or of other code.
        digest = hashlib.sha256(str(exec_properties["custom_config"]).encode()).hexdigest()[:16]
        context = compat.executor_context(self)
        name = context.pipeline_info.id if context and context.pipeline_info else "model"
        custom = {**json_utils.loads(exec_properties["custom_config"]), PIPELINE: name}
        exec_properties = {**exec_properties, "custom_config": json_utils.dumps(custom)}
        results = artifact_utils.get_single_uri(output_dict["tuner_results"])
        folder = compat.stateful_working_dir(self) or compat.temporary_dir(self)
        try:
            search: Search = stock.search(input_dict, exec_properties, f"{folder}/{digest}")
        except SystemExit as error:
            if not user_code.is_termination(error):
                raise InputError(
                    f"tuning: expected code that returns, received sys.exit({error.code!r})",
                    "remove the call of sys.exit from the code of the model; the whole traceback is in the node's log",
                ) from error
            raise MachineError(
                "tuning was stopped by SIGTERM", "--resume the run: it continues with the interrupted trial"
            ) from error
        stock.write_best_hyperparameters(search, output_dict)
        io_utils.write_string_file(f"{results}/{result.FILE}", json.dumps(search.records(), indent=1))
