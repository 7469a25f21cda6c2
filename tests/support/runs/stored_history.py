"""A store with a small history: three runs of one pipeline, the second half from the cache, the third not blessed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ml_metadata.proto import metadata_store_pb2 as proto

from pipeline.core.metadata.location import Location
from pipeline.core.metadata.store import Store
from tests.support.runs.store_writer import Writer


@dataclass
class History:
    """The written history.

    Attributes:
      writer: Writer of the store.
      location: Location of the store.
      logs: Folder of the runs' records.
      artifacts: Names that tests use → artifact.
      executions: `run.node` → its number.
    """

    writer: Writer
    location: Location
    logs: Path
    artifacts: dict[str, proto.Artifact]
    executions: dict[str, int]

    @property
    def store(self) -> Store:
        """The store, opened for reading."""
        return Store(self.location)

    def number(self, name: str) -> int:
        """Return the number of an artifact."""
        return int(self.artifacts[name].id)

    def write_record(self, run: str, **record: object) -> None:
        """Write the record of a run."""
        (self.logs / run).mkdir(parents=True, exist_ok=True)
        (self.logs / run / "run.json").write_text(json.dumps({"run": run, **record}))


def write_history(folder: Path, location: Location | None = None) -> History:
    """Write the history into a folder with the layout of `out/<pipeline>`, and the store to `location` if given."""
    location = location or folder / "metadata.db"
    writer = Writer(location)
    history = History(writer, location, folder / "logs", {}, {})

    def artifact(name: str, kind: str, **properties: int | str) -> proto.Artifact:
        content = folder / "artifacts" / name / "content"
        content.parent.mkdir(parents=True, exist_ok=True)
        content.write_text(name * 100)
        history.artifacts[name] = writer.artifact(kind, str(content.parent), **properties)
        return history.artifacts[name]

    def ran(run: str, node: str, state: str, outputs: list[str], **more: object) -> None:
        several = [history.artifacts[name] for name in outputs]
        history.executions[f"{run}.{node}"] = writer.execution(run, node, state, several, **more)  # type: ignore[arg-type]

    for run, rate in (("r1", 0.1), ("r2", 0.2), ("r3", 0.2)):
        writer.run(run, json.dumps({"training": {"learning_rate": rate}}))
    artifact("rows 1", "Examples", span=1, split_names='["train", "eval"]', rows_train=8)
    artifact("rows 3", "Examples", span=3, split_names='["train", "eval"]', rows_train=9)
    for number in (1, 2, 3):
        artifact(f"model {number}", "Model")
        artifact(f"blessing {number}", "ModelBlessing", blessed=int(number < 3))
    for number in (1, 2):
        artifact(f"pushed {number}", "PushedModel", pushed=1, pushed_version=str(10 + number))
    for number, rows, rate in ((1, "rows 1", 0.1), (2, "rows 1", 0.2), (3, "rows 3", 0.2)):
        run = f"r{number}"
        ran(run, "ExampleGen", "CACHED" if number == 2 else "COMPLETE", [rows])
        plan = json.dumps({"code": "abc", "plan": json.dumps({"learning_rate": rate, "hidden": [8, 4]})})
        model, inputs = f"model {number}", {"examples": history.artifacts[rows]}
        ran(run, "Trainer", "COMPLETE", [model], inputs=inputs, parameters={"custom_config": plan, "__own__": number})
        baseline = {"baseline_model": history.artifacts[f"model {number - 1}"]} if number > 1 else {}
        judged = {**inputs, "model": history.artifacts[model], **baseline}
        ran(run, "Evaluator", "COMPLETE", [f"blessing {number}"], inputs=judged)
        if number < 3:
            pushed = {"model": history.artifacts[model], "model_blessing": history.artifacts[f"blessing {number}"]}
            ran(run, "Pusher", "COMPLETE", [f"pushed {number}"], inputs=pushed)
    return history
