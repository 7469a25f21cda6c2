"""Tests that the Flink benchmark attributes the resources of a shared cluster to the node that is running."""

from __future__ import annotations

from benchmarks.flink_scale import Sample, node


def test_node_is_charged_for_the_cluster_while_it_runs() -> None:
    seconds = [(0, 3.0, 100), (1, 4.0, 300), (2, 6.5, 900), (3, 7.0, 500), (4, 9.0, 2000)]
    samples = [Sample(moment, {"job manager": cpu, "unused": 0}, memory) for moment, cpu, memory in seconds]
    usage = node(samples, {"ended": 2.7, "seconds": 1.4, "cpu_seconds": 0.5})
    assert usage.cpu == {"node": 0.5, "job manager": 3.0}
    assert (usage.wall, usage.all_cpu, usage.peak_mb) == (1.4, 3.5, 900)
