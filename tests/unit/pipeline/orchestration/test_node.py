"""Tests that run single nodes with TFX's launcher, and check their results and their records in ML Metadata."""

from __future__ import annotations

import copy
import functools
from pathlib import Path

import ml_metadata as mlmd
import pytest
from ml_metadata.proto import metadata_store_pb2 as proto

from components.base.errors import InputError
from pipeline.core.metadata.store import Store
from pipeline.core.records import CACHED, DONE, EXCLUDE, FAILED, REUSE, RUN, SKIPPED, GraphNode, NodeOutcome
from pipeline.orchestration.local import processes
from tests.support.runs.toy_runs import add_config, compile_in_child
from tests.support.servers.in_fork_server import in_child

CHAIN = ("Source", "Add", "Actor", "Rows")


class Toy:
    """A compiled toy pipeline whose nodes run one by one in child processes.

    Args:
      folder: Folder of the metadata store, the artifacts and the logs.
      shape: Name of the pipeline's graph in `toy_runs`.
      value: Parameter of the node Source.
    """

    def __init__(self, folder: Path, shape: str = "chain", value: int = 1) -> None:
        self.folder = folder
        call = processes.compile_pipeline, functools.partial(compile_in_child, folder, shape, value)
        self.ir, self.graph = in_child(folder / "test.log", *call)

    def with_config(self, config: str) -> Toy:
        """Return a copy of the pipeline that records the given text as its config."""
        toy = copy.copy(self)
        toy.ir = in_child(self.folder / "test.log", add_config, self.ir, config)
        return toy

    def run(self, node: str, run: str) -> NodeOutcome:
        folder = self.folder / "logs" / run
        folder.mkdir(parents=True, exist_ok=True)
        outcome = in_child(self.folder / "test.log", processes.run_node, self.ir, node, folder)
        assert isinstance(outcome, NodeOutcome)
        return outcome

    def run_all(self, run: str, nodes: tuple[str, ...] = CHAIN) -> list[str]:
        return [self.run(node, run).state for node in nodes]

    def partial(self, run: str, from_nodes: tuple[str, ...] = (), to_nodes: tuple[str, ...] = ()) -> Toy:
        """Return a copy of the pipeline that is prepared for a partial run."""
        partial_toy = copy.copy(self)
        call = processes.make_partial, self.ir, run, from_nodes, to_nodes
        partial_toy.ir, partial_toy.graph = in_child(self.folder / "test.log", *call)
        return partial_toy

    @property
    def actions(self) -> dict[str, str]:
        return {node.id: node.action for node in self.graph}


def read_states(folder: Path, run: str) -> dict[str, str]:
    return {execution.node: execution.state for execution in Store(folder / "metadata.db").executions(run)}


def test_graph_is_in_topological_order_with_upstream_nodes(tmp_path: Path):
    assert Toy(tmp_path).graph == (
        GraphNode("Source", (), RUN),
        GraphNode("Add", ("Source",), RUN),
        GraphNode("Actor", ("Add",), RUN),
        GraphNode("Rows", ("Actor",), RUN),
    )


def test_nodes_run_then_are_cached_then_are_not_repeated(tmp_path: Path):
    toy = Toy(tmp_path)
    outcomes = [toy.run(name, "r1") for name in CHAIN]
    assert [(outcome.state, outcome.earlier) for outcome in outcomes] == [(DONE, False)] * 4
    assert [outcome.rows for outcome in outcomes] == [None, None, None, 12]

    assert toy.run_all("r2") == [CACHED] * 4

    repeated = toy.run("Rows", "r1")
    assert (repeated.state, repeated.earlier, repeated.execution_id, repeated.rows) == (
        DONE,
        True,
        outcomes[3].execution_id,
        12,
    )
    assert len(Store(tmp_path / "metadata.db").executions("r1")) == 4


def test_node_whose_condition_is_false_is_skipped(tmp_path: Path):
    assert Toy(tmp_path, "condition", value=1).run_all("r1", ("Source", "Add")) == [DONE, SKIPPED]
    assert Toy(tmp_path, "condition", value=200).run_all("r2", ("Source", "Add")) == [DONE, DONE]


def test_missing_input_fails_the_node(tmp_path: Path):
    outcome = Toy(tmp_path).run("Add", "r1")
    assert outcome.state == FAILED
    assert outcome.error is not None
    assert "Add could not start: an input is missing" in outcome.error.headline
    assert "min_count has not met" in (tmp_path / "test.log").read_text()


@pytest.mark.parametrize(
    ("script", "headline", "exit_code"),
    [
        ("raise", "Actor failed: ValueError: no such luck", 1),
        ("exit", "Actor failed: SystemExit: 3", 1),
        ("input", "trips.csv, row 7: expected 18 fields, received 17", 2),
        ("gate", "too many gaps", 3),
    ],
)
def test_failure_is_recorded_and_a_second_attempt_succeeds(tmp_path: Path, script: str, headline: str, exit_code: int):
    (tmp_path / "Actor.script").write_text(script)
    toy = Toy(tmp_path)
    assert toy.run_all("r1", ("Source", "Add")) == [DONE, DONE]
    outcome = toy.run("Actor", "r1")
    assert outcome.state == FAILED
    assert outcome.error is not None
    assert (outcome.error.headline, outcome.error.exit_code) == (headline, exit_code)
    in_child(tmp_path / "test.log", processes.clean_up, toy.ir, tmp_path / "logs" / "r1")
    assert read_states(tmp_path, "r1")["Actor"] in ("FAILED", "CANCELED")
    assert not [path for path in (tmp_path / "artifacts" / "Actor").rglob("*") if path.is_file()]

    (tmp_path / "Actor.script").unlink()
    assert toy.run_all("r1", ("Actor", "Rows")) == [DONE, DONE]
    assert read_states(tmp_path, "r1") == dict.fromkeys(CHAIN, "COMPLETE")


def test_second_attempt_records_the_inputs_and_properties_that_it_uses(tmp_path: Path):
    toy = Toy(tmp_path)
    # Without its input, the node fails and records an execution without inputs.
    assert toy.run_all("r1", ("Add", "Source", "Add")) == [FAILED, DONE, DONE]

    add = Store(tmp_path / "metadata.db").execution("r1", "Add")
    assert add is not None
    config = proto.ConnectionConfig()
    config.sqlite.filename_uri = str(tmp_path / "metadata.db")
    store = mlmd.MetadataStore(config)
    events = store.get_events_by_execution_ids([add.id])
    assert sorted(event.type for event in events) == sorted([proto.Event.INPUT, proto.Event.OUTPUT])
    [execution] = store.get_executions_by_id([add.id])
    assert "__execution_result__" not in execution.custom_properties
    assert execution.custom_properties["amount"].int_value == 1


def test_resume_is_rejected_if_settings_of_a_finished_node_have_changed(tmp_path: Path) -> None:
    assert Toy(tmp_path, value=1).with_config('{"value": 1}').run("Source", "r1").state == DONE
    changed = Toy(tmp_path, value=2).with_config('{"value": 2}')
    # A node that has not run yet must fail as well, because it would read outputs of the previous settings.
    for node in ("Source", "Add"):
        outcome = changed.run(node, "r1")
        assert outcome.state == FAILED
        assert outcome.error is not None
        assert outcome.error.exit_code == 2
        assert "Source: value: expected 1, received 2" in outcome.error.headline
    assert Store(tmp_path / "metadata.db").config("r1") == {"value": 1}
    assert read_states(tmp_path, "r1") == {"Source": "COMPLETE"}


@pytest.mark.parametrize("length", [3, pytest.param(2000, marks=pytest.mark.extended)])
def test_resume_records_the_config_of_the_remaining_nodes(tmp_path: Path, length: int) -> None:
    # A long config is recorded in several properties. A shorter config must replace all of them.
    first, second = ('{"steps": "%s"}' % ("1" * size) for size in (1200, length))
    assert Toy(tmp_path).with_config(first).run("Source", "r1").state == DONE
    assert Toy(tmp_path).with_config(second).run("Add", "r1").state == DONE
    assert Store(tmp_path / "metadata.db").configs(["r1"]) == {"r1": second}


def test_partial_run_uses_the_newest_run_with_its_inputs(tmp_path: Path):
    toy = Toy(tmp_path)
    assert toy.run_all("r1") == [DONE] * 4
    assert toy.run_all("r2") == [CACHED] * 4
    # The newest run does not have outputs of Add.
    assert Toy(tmp_path, value=2).run_all("r3", ("Source",)) == [DONE]

    partial = toy.partial("r4", ("Actor",), ("Actor",))
    assert partial.actions == {"Source": REUSE, "Add": REUSE, "Actor": RUN, "Rows": EXCLUDE}
    assert read_states(tmp_path, "r4") == {"Source": "CACHED", "Add": "CACHED"}
    assert partial.run("Actor", "r4").state == CACHED
    # Prepare the partial run again, as a resumed run does.
    toy.partial("r4", ("Actor",), ("Actor",))
    assert len(Store(tmp_path / "metadata.db").executions("r4")) == 3


def test_run_up_to_a_node_does_not_need_an_earlier_run(tmp_path: Path):
    partial = Toy(tmp_path).partial("r1", to_nodes=("Add",))
    assert partial.actions == {"Source": RUN, "Add": RUN, "Actor": EXCLUDE, "Rows": EXCLUDE}
    assert partial.run_all("r1", ("Source", "Add")) == [DONE, DONE]


def test_resolver_runs_again_in_a_partial_run(tmp_path: Path):
    toy = Toy(tmp_path, "resolver")
    assert toy.run_all("r1", ("Source", "Latest", "Add")) == [DONE, DONE, DONE]
    partial = toy.partial("r2", ("Add",))
    assert partial.actions == {"Source": EXCLUDE, "Latest": RUN, "Add": RUN}
    assert partial.run_all("r2", ("Latest", "Add")) == [DONE, CACHED]


def test_partial_run_without_an_earlier_run_is_rejected(tmp_path: Path):
    with pytest.raises(InputError, match="nothing to start from: no earlier run has outputs of Source, Add"):
        Toy(tmp_path).partial("r1", ("Actor",))


def test_unknown_node_is_reported_with_a_similar_name(tmp_path: Path):
    with pytest.raises(InputError, match="expected a node of this pipeline, received 'Actr'") as raised:
        Toy(tmp_path).partial("r1", ("Actr",))
    assert raised.value.remedy == "did you mean Actor?"
