"""Every engine that a machine has without a cluster runs the same data path: what comes of it equals in-memory's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import people
import pytest
import tensorflow as tf
from beam_servers import Server, served
from command import Ended, command
from tensorflow_metadata.proto.v0 import statistics_pb2

from components.data.example_encoder import encode
from components.data.examples import Examples

pytestmark = pytest.mark.both_lines

SPLITS = ("train", "eval")


@dataclass(frozen=True)
class Ran:
    """A run up to Transform."""

    ended: Ended
    artifacts: Path

    def examples(self, node: str, output: str, split: str) -> list[tf.train.Example]:
        """The Examples of a split, in an order that does not depend on the last digits of a float."""
        (folder,) = (self.artifacts / node / output).iterdir()
        files = tuple(sorted(map(str, (folder / f"Split-{split}").iterdir())))
        records = (record for batch in Examples(files, "parquet").batches() for record in encode(batch).to_pylist())
        return sorted(map(tf.train.Example.FromString, records), key=_order)

    def statistics(self, split: str) -> dict[str, Any]:
        """Column → its statistics."""
        (folder,) = (self.artifacts / "StatisticsGen" / "statistics").iterdir()
        serialized = (folder / f"Split-{split}" / "FeatureStats.pb").read_bytes()
        (data,) = statistics_pb2.DatasetFeatureStatisticsList.FromString(serialized).datasets
        return {each.path.step[0]: each for each in data.features}


@dataclass(frozen=True)
class Beam:
    """Beam's servers on this machine."""

    job_service: Server
    pools: tuple[Server, Server]


@pytest.fixture(scope="module")
def beam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beam]:
    """A job service and two worker pools."""
    folder = tmp_path_factory.mktemp("beam")
    with contextlib.ExitStack() as servers:
        names = ("job_service", "pool", "pool")
        found = [
            servers.enter_context(served(name, folder / f"{name}-{number}.log")) for number, name in enumerate(names)
        ]
        yield Beam(found[0], (found[1], found[2]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def in_memory(folder: Path) -> Ran:
    """What all others are held against."""
    return ran(folder, "direct", "in_memory", {"direct": {"mode": "in_memory"}})


def ran(folder: Path, engine: str, name: str, runtime: dict[str, Any]) -> Ran:
    """Runs the pipeline up to Transform, into a folder of its own."""
    data = people.write(folder / name / "people.csv", people.rows())
    config = people.write_config(folder / name / "people.yaml", data, runtime=runtime)
    ended = command(
        *("--local", "--json", "--config", str(config), "--output", str(folder / name), "--to", "Transform"),
        *("--engine", engine),
    )
    assert ended.exit_code == 0, ended.out + ended.err
    return Ran(ended, Path(runtime.get("artifacts", folder / name / "people" / "artifacts")))


def assert_equal(found: Ran, expected: Ran) -> None:
    """Example by Example; floats within 1e-6, all else exactly."""
    for node, output in (("ExampleGen", "examples"), ("Transform", "transformed_examples")):
        for split in SPLITS:
            ours, theirs = (run.examples(node, output, split) for run in (found, expected))
            assert len(ours) == len(theirs) > 100
            for one, other in zip(ours, theirs, strict=True):
                assert_same_example(one, other)
    for split in SPLITS:
        ours, theirs = found.statistics(split), expected.statistics(split)
        assert set(ours) == set(theirs) == set(people.COLUMNS)
        for column, one in theirs.items():
            kind = one.WhichOneof("stats")
            assert ours[column].WhichOneof("stats") == kind
            assert ours[column].string_stats.unique == one.string_stats.unique
            for number in ("mean", "std_dev", "min", "median", "max"):
                expected_number = getattr(one.num_stats, number)
                assert getattr(ours[column].num_stats, number) == pytest.approx(expected_number, rel=1e-9)
            common = [getattr(each, str(kind)).common_stats for each in (ours[column], one)]
            assert len({(each.num_non_missing, each.num_missing) for each in common}) == 1


def assert_same_example(one: tf.train.Example, other: tf.train.Example) -> None:
    ours, theirs = one.features.feature, other.features.feature
    assert set(ours) == set(theirs)
    for name, feature in theirs.items():
        kind = feature.WhichOneof("kind")
        assert ours[name].WhichOneof("kind") == kind
        values = [list(getattr(each, kind).value) if kind else [] for each in (ours[name], feature)]
        assert values[0] == (pytest.approx(values[1], rel=1e-6, abs=1e-6) if kind == "float_list" else values[1]), name


def _order(example: tf.train.Example) -> tuple[str, str]:
    exact, rounded = [], []
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if kind == "float_list":
            rounded.append([round(value, 3) for value in values])
        else:
            exact.append((name, values))
    return repr(exact), repr(rounded)


@pytest.mark.slow
def test_two_processes_of_beams_own(folder: Path, in_memory: Ran) -> None:
    found = ran(folder, "direct", "processes", {"direct": {"mode": "multi_processing", "workers": 2}})
    assert found.ended.result["beam"] == [
        "Beam: direct, on this machine, 2 worker processes for each node, as runtime.direct.mode says",
        "Beam: ExampleGen, StatisticsGen, Transform and Evaluator in 2 forked workers",
    ]
    assert_equal(found, in_memory)


def test_job_service_with_loopback_workers(folder: Path, in_memory: Ran, beam: Beam) -> None:
    address = beam.job_service.address
    found = ran(folder, "portable", "loopback", {"portable": {"job_endpoint": address}})
    assert found.ended.result["beam"] == [
        f"Beam: portable, job service {address}, LOOPBACK: workers in each node's own process"
    ]
    assert_equal(found, in_memory)


@pytest.mark.slow
def test_job_service_with_a_pool(folder: Path, in_memory: Ran, beam: Beam) -> None:
    before = [pool.workers_started for pool in beam.pools]
    section = {"job_endpoint": beam.job_service.address, "worker_pools": [beam.pools[1].address]}
    assert_equal(ran(folder, "portable", "pool", {"portable": section}), in_memory)
    started = [pool.workers_started - earlier for pool, earlier in zip(beam.pools, before, strict=True)]
    assert started[0] == 0
    assert started[1] >= 3, "ExampleGen, StatisticsGen and Transform have had one each"


@pytest.mark.slow
def test_two_pools_without_a_job_service(folder: Path, in_memory: Ran, beam: Beam) -> None:
    before = [pool.workers_started for pool in beam.pools]
    section = {"worker_pools": [pool.address for pool in beam.pools]}
    elsewhere = {"artifacts": str(folder / "elsewhere")}
    assert_equal(ran(folder, "portable", "pools", {"portable": section, **elsewhere}), in_memory)
    started = [pool.workers_started - earlier for pool, earlier in zip(beam.pools, before, strict=True)]
    assert started[0] == started[1] >= 3, "each job has had a worker of each"
