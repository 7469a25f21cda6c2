"""Pushes a model to a URL in a fork of the node server, whose TensorFlow reaches a fake object store.

The argument is a JSON object: `directory`, `model` (the folder of a Model artifact), `out` (a folder for what
stays with the run), `push` (the section of the config) and `times`. It prints each push's version or
error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfx.types import Channel
from tfx.types.standard_artifacts import Model, PushedModel

from components.pusher.component import Pusher
from components.pusher.config import PushConfig
from components.pusher.executor import Executor
from components.pusher.plan import PushPlan


def main(arguments: Sequence[str]) -> int:
    """Push the model `times` times."""
    record = json.loads(arguments[0])
    plan = PushPlan(push=PushConfig.model_validate(record["push"]), model_name="taxi")
    node = Pusher(plan, record["directory"], model=Channel(type=Model))
    model = Model()
    model.uri = record["model"]
    ended = []
    for _ in range(record["times"]):
        pushed = PushedModel()
        pushed.uri = record["out"]
        try:
            Executor().Do({"model": [model]}, {"pushed_model": [pushed]}, node.exec_properties)
            ended.append(pushed.get_string_custom_property("pushed_version"))
        except Exception as error:
            ended.append(f"{type(error).__name__}: {error}")
    print(json.dumps(ended))  # noqa: T201 - the answer
    return 0
