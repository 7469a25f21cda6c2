"""Describes Tuner, and the section of the report on its trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from components.base.node import NodeWithResult, ReportSection
from components.tuner import result
from components.tuner.report_section import make_section
from components.tuner.result import Trial


class TunerNode(NodeWithResult[tuple[Trial, ...]]):
    """Tuner, which tries values of the training and the model."""

    result_output = "tuner_results"
    result_file = result.FILE

    def parse_result(self, text: str) -> tuple[Trial, ...]:
        """Parse `trials.json`."""
        return result.parse(text)

    def to_json(self, result: tuple[Trial, ...]) -> Mapping[str, Any]:
        """Return all trials without their curves, which are too long for a summary."""
        trials = [{name: value for name, value in asdict(trial).items() if name != "curve"} for trial in result]
        return {"trials": trials}

    def make_section(self, result: tuple[Trial, ...]) -> ReportSection:
        """Return the section on the trials."""
        return make_section(result)


NODES = (TunerNode("Tuner", outputs=("best_hyperparameters", "tuner_results"), upstream=("SchemaGen", "Transform")),)
