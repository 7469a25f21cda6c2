"""Tests for the resources that are suggested from a measured run."""

from __future__ import annotations

from typing import Any

from pipeline.authoring.config.orchestrators import KubeflowConfig
from pipeline.inspection.measured_resources import suggest_resources


def node(seconds: float, cpu_seconds: float | None, memory: float | None, state: str = "done") -> dict[str, Any]:
    return {"state": state, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_memory_mb": memory}


def test_resources_cover_the_measured_use_and_fit_the_config() -> None:
    nodes = {
        "Trainer": node(100.0, 380.0, 5200.0),
        "SchemaGen": node(4.0, 0.1, 90.0),
        "Transform": node(1.0, 3.0, 800.0, "cached"),
        "Pusher": node(1.0, 0.5, 100.0, "failed"),
        "Monitor": node(1.0, None, None),
    }
    resources = suggest_resources(nodes)
    # 1.25 · 3.8 cores = 4.75; 1.5 · 5200 MiB = 8.18 GB.
    assert resources == {"Trainer": {"cpu": 4.75, "memory_gb": 8.5}, "SchemaGen": {"cpu": 1.0, "memory_gb": 0.5}}
    section = KubeflowConfig.model_validate({"image": "i:1", "claim": "c", "resources": resources})
    assert section.resources["Trainer"].memory_gb == 8.5
