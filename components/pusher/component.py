"""Pusher as a node of the pipeline: TFX's own, with an executor that pushes atomically."""

from __future__ import annotations

from pathlib import Path

from tfx.components.pusher.component import Pusher
from tfx.dsl.components.base import executor_spec
from tfx.proto import pusher_pb2
from tfx.types import BaseChannel

from components.pusher import target
from components.pusher.executor import Executor


def pusher(model: BaseChannel, blessing: BaseChannel | None, directory: str) -> Pusher:
    """The node `Pusher`, whose one output is `pushed_model`.

    Args:
      model: the model to push.
      blessing: the Evaluator's verdict; without one, every model is pushed.
      directory: the push folder, local or remote.
    """
    base = directory if target.is_remote(directory) else str(Path(directory).absolute())
    return Pusher(
        model=model,
        model_blessing=blessing,
        push_destination=pusher_pb2.PushDestination(
            filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=base)
        ),
        custom_executor_spec=executor_spec.ExecutorClassSpec(Executor),
    )
