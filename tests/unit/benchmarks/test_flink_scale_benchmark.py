"""The benchmark on Flink: what falls to a node of what a cluster takes all the time."""

from __future__ import annotations

from benchmarks.flink_scale import Sample, node


def test_node_has_what_the_cluster_takes_while_it_runs() -> None:
    seconds = [(0, 3.0, 100), (1, 4.0, 300), (2, 6.5, 900), (3, 7.0, 500), (4, 9.0, 2000)]
    samples = [Sample(moment, {"job manager": cpu, "unused": 0}, memory) for moment, cpu, memory in seconds]
    found = node(samples, {"ended": 2.7, "seconds": 1.4, "cpu_seconds": 0.5})
    assert found.cpu == {"node": 0.5, "job manager": 3.0}
    assert (found.wall, found.all_cpu, found.peak_mb) == (1.4, 3.5, 900)
