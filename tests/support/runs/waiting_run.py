"""A run whose blessed model waits for an approval, as the Pusher records it, without running a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.pusher import candidate
from components.pusher.candidate import Candidate
from components.pusher.config import PushConfig
from components.pusher.plan import PushPlan
from pipeline.core.metadata.location import Location
from pipeline.core.metadata.store import Store
from tests.support.runs.pushed import PROVENANCE
from tests.support.runs.store_writer import Writer

FILES = {"saved_model.pb": b"graph" * 1000, "variables/variables.index": b"values"}


@dataclass(frozen=True)
class WaitingRun:
    """A run of the pipeline `small`.

    Attributes:
      output: Output folder of the pipeline.
      config: Arguments of commands that select the config.
      run: ID of the run.
      model: Folder of the candidate.
    """

    output: Path
    config: tuple[str, ...]
    run: str
    model: Path

    @property
    def store(self) -> Store:
        return Store(self.output / "metadata.db")

    @property
    def pushed(self) -> Path:
        return self.output / "pushed"

    @property
    def versions(self) -> list[Path]:
        """The version folders that a model server finds, and every other visible folder with a number."""
        return sorted(path for path in self.pushed.glob("[!.]*") if path.name.isdecimal())


def write_waiting_run(
    folder: Path,
    run: str = "r1",
    blessed: int = 1,
    served: int = 1,
    push: dict[str, object] | None = None,
    location: Location | None = None,
) -> WaitingRun:
    """Write a config, and a store with a run that ended before its push.

    Args:
      folder: For the config and the output folder.
      run: ID of the run.
      blessed: Property `blessed` of the Evaluator's blessing.
      served: The same of the serving check.
      push: Fields of the section `push`.
      location: The metadata store. If None, the file in the output folder.
    """
    section = {"approval": "required", **(push or {})}
    config = folder / "small.yaml"
    config.write_text(
        "data: {path: rows.csv, label: tips}\nfeatures: {columns: {fare: z_score}}\n"
        f"evaluation: {{thresholds: {{auc: {{min: 0.5}}}}}}\nruntime: {{output: {folder / 'out'}}}\n"
        "push: {approval: required}\n"
    )
    output = folder / "out" / "small"
    model = output / "artifacts" / "Pusher" / "pushed_model" / run
    for path, content in FILES.items():
        (model / path).parent.mkdir(parents=True, exist_ok=True)
        (model / path).write_bytes(content)
    recorded = Candidate(
        directory=str(output / "pushed"),
        plan=PushPlan(push=PushConfig.model_validate(section), model_name="small"),
        provenance=PROVENANCE.model_copy(update={"pipeline": "small", "run": run}),
        digest=candidate.compute_digest(str(model)),
    )
    waits = blessed and served and section["approval"] == "required"
    facts = {**candidate.to_properties(recorded), "approval": "pending"} if waits else {}
    writer = Writer(location or output / "metadata.db", "small")
    inputs = {
        "model": writer.artifact("Model", "/model"),
        "model_blessing": writer.artifact("ModelBlessing", "/blessing", blessed=blessed),
        "infra_blessing": writer.artifact("InfraBlessing", "/infra", blessed=served),
    }
    writer.execution(run, "Trainer", outputs=[inputs["model"]])
    writer.execution(run, "Evaluator", outputs=[inputs["model_blessing"]])
    writer.execution(run, "InfraValidator", outputs=[inputs["infra_blessing"]])
    pushed = writer.artifact("PushedModel", str(model), pushed=0, **facts)
    writer.execution(run, "Pusher", outputs=[pushed], keys=["pushed_model"], inputs=inputs)
    return WaitingRun(output, ("--config", str(config)), run, model)
