"""Describes EdgeExporter: its section of the config, how it is built, and the table of its variants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from components.base.config_section import Problem
from components.base.node import NodeWithResult, OptionalNode, ResultTable, Wiring
from components.edge.checks import check_edge
from components.edge.config import EdgeConfig
from components.edge.plan import EdgePlan
from components.edge.verdict import FILE, EdgeVerdict, VariantResult
from components.trainer.node import list_code as list_trainer_code


class EdgeExporterNode(NodeWithResult[EdgeVerdict], OptionalNode):
    """EdgeExporter, which converts a blessed model to variants for small devices."""

    result_file = FILE
    section = "edge"
    component = "components.edge.component:EdgeExporter"
    section_type = EdgeConfig
    default = ()
    pushes = "variants"

    def check_against(self, config: Any) -> Iterator[Problem]:
        """Yield models, labels and operations that cannot be converted."""
        return check_edge(config)

    def list_code(self, config: Any) -> Sequence[str]:
        """Return the code of the conversion, and the Trainer's code if variants are trained further."""
        if not any(variant.is_trained for variant in config.edge):
            return ("components.edge", "components.features.feature_names", "components.features.host")
        students = (variant.student.list_code() for variant in config.edge if variant.student)
        return ("components.edge", *list_trainer_code(config), *itertools.chain.from_iterable(students))

    def build(self, wiring: Wiring) -> Any:
        """Build the component, which reads the model and the examples."""
        nodes, config = wiring.nodes, wiring.config
        is_trained = any(variant.is_trained for variant in config.edge)
        plan = EdgePlan(
            variants=config.edge,
            features=wiring.plans.training.features,
            training=wiring.plans.training if is_trained else None,
            pushed=config.paths().pushed if any(variant.teacher for variant in config.edge) else "",
            code=wiring.inputs.code,
        )
        tuner = nodes.get("Tuner")
        return self.load_component()(
            plan,
            model=nodes["Trainer"].outputs["model"],
            blessing=nodes["Evaluator"].outputs["blessing"],
            transform_graph=nodes["Transform"].outputs["transform_graph"],
            transformed_examples=nodes["Transform"].outputs["transformed_examples"],
            examples=nodes["ExampleGen"].outputs["examples"],
            hyperparameters=tuner.outputs["best_hyperparameters"] if tuner and is_trained else None,
        )

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
    if device := variant.device:
        latencies = f"p50 {device.p50_ms:.3g} ms, p99 {device.p99_ms:.3g} ms"
        quality = "" if device.metric is None else f"{metric} {device.metric:.4f}, "
        figures = f"{quality}{latencies}, max |Δ| {device.max_difference:.2g}"
        yield f"{variant.name} on the device: {device.rows} rows, {figures}"
    for accelerator, operations in variant.unsupported.items():
        if operations:
            yield f"{variant.name}: the {accelerator} does not support {', '.join(operations)}"
    if variant.removed:
        counts = ", ".join(f"{layer} {before} → {after}" for layer, (before, after) in variant.removed.items())
        whole = ", ".join(f"{layer} ({reason})" for layer, reason in variant.whole.items())
        yield f"{variant.name}: units or filters: {counts}" + (f"; as they are: {whole}" if whole else "")
    if variant.left_out:
        yield f"{variant.name}: {len(variant.layers)} layers; as they are: {', '.join(variant.left_out)}"


def _format_mean_and_range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.4f} ({min(known):.4f} to {max(known):.4f})" if known else "not computable"
