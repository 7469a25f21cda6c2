"""The entry of EdgeExporter in the list of nodes, and the table of its variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from components.base.node import NodeWithResult, ResultTable
from components.edge.verdict import FILE, EdgeVerdict, VariantResult


class EdgeExporterNode(NodeWithResult[EdgeVerdict]):
    """EdgeExporter, which converts a blessed model to variants for small devices."""

    result_file = FILE

    def parse_result(self, text: str) -> EdgeVerdict:
        """Parse `verdict.json`."""
        return EdgeVerdict.from_json(text)

    def to_json(self, result: EdgeVerdict) -> Mapping[str, Any]:
        """Return the verdict."""
        return asdict(result)

    def tabulate(self, result: EdgeVerdict) -> ResultTable:
        """Return a table with one row per variant.

        Zeros and distinct weights are counted in dense and convolutional layers; the number of distinct weights is the
        maximum of the layers. Latencies and speeds are measured with one thread and with two threads.
        """
        if result.why:
            return ResultTable(notes=[f"No variants for small devices: {result.why}."])
        full = "" if result.full is None else f", where its {result.metric} is {result.full:.4f}"
        columns = ("kB", "gzip kB", result.metric, "mean |Δp|", "max |Δp|", "zeros", "distinct", "p50 / p99 ms")
        failures = [
            f"{variant.name} is not pushed: {'; '.join(variant.why)}" for variant in result.variants if variant.why
        ]
        notes = [note for variant in result.variants for note in _list_notes(result.metric, variant)]
        return ResultTable(
            caption=f"Variants for small devices, compared with the model on {result.rows:,} rows{full}",
            header=["variant", *columns, "2 threads", "speed", "outcome"],
            rows=[[*_format_cells(variant), "pass" if variant.passed else "fail"] for variant in result.variants],
            legend=(
                "Latencies of one row in TensorFlow Lite on the machine of the run, with one thread and with two; the "
                "speed, with one and with two, is relative to the float32 file."
            ),
            notes=[*failures, *notes],
        )


NODES = (
    EdgeExporterNode(
        "EdgeExporter", outputs=("variants",), upstream=("ExampleGen", "Transform", "Trainer", "Evaluator")
    ),
)


def _format_cells(variant: VariantResult) -> list[str]:
    if variant.bytes is None:
        return [variant.name, *[""] * 10]
    sizes = [f"{(size or 0) / 1000:,.1f}" for size in (variant.bytes, variant.gzip_bytes)]
    quality = [variant.metric, variant.mean_difference, variant.max_difference]
    figures = ["" if value is None else f"{value:.4f}" for value in quality]
    weights = ["", ""] if variant.sparsity is None else [f"{variant.sparsity:.0%}", f"{variant.distinct:,}"]
    latencies = [f"{latency.p50_ms:.3g} / {latency.p99_ms:.3g}" for latency in variant.latencies]
    speeds = " / ".join(f"{latency.speedup:.2f}" for latency in variant.latencies)
    return [variant.name, *sizes, *figures, *weights, *(latencies or ["", ""]), speeds]


def _list_notes(metric: str, variant: VariantResult) -> Iterator[str]:
    if student := variant.student:
        taught, alone = _format_mean_and_range(student.taught), _format_mean_and_range(student.alone)
        yield f"{variant.name}: {metric} of {len(student.taught)} seeds in float32: {taught}; trained alone: {alone}"
    if variant.left_out:
        yield f"{variant.name}: {len(variant.layers)} layers; as they are: {', '.join(variant.left_out)}"


def _format_mean_and_range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f} ({min(known):.4f} to {max(known):.4f})" if known else "not computable"
