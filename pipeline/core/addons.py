"""The registries of engines, orchestrators and verbs, to which installed packages can add entries.

The other registries are defined next to their entries: OPS in components/features/config.py, MODELS in
components/models/registry.py, METRICS in components/evaluator/config.py, and NODES in pipeline/core/nodes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from components.base.registry import Registry, describe_origin

ENGINES: Registry[Any] = Registry(
    "engines",
    {
        "direct": "pipeline.orchestration.engines.direct:Direct",
        "dataflow": "pipeline.orchestration.engines.dataflow:Dataflow",
        "flink": "pipeline.orchestration.engines.job_server:Flink",
        "spark": "pipeline.orchestration.engines.job_server:Spark",
        "portable": "pipeline.orchestration.engines.portable:Portable",
    },
    "a subclass of pipeline.orchestration.engines.base.Engine",
    lambda entry: isinstance(entry, type) and hasattr(entry, "reads_this_disk"),
)
"""Name → class of the engine."""

ORCHESTRATORS: Registry[Callable[[Any, tuple[str, ...], Path], Path]] = Registry(
    "orchestrators", {}, "a function (config, arguments, output) → path of the written file", callable
)
"""Name → function that writes a pipeline for an orchestrator of an installed package.

The function receives the config, the arguments of `runner.py` that select the same pipeline, and the path of --output.
"""

VERBS: Registry[ModuleType] = Registry(
    "verbs",
    {},
    "a module with HELP, EXAMPLE, add_arguments(parser) and run(options)",
    lambda entry: isinstance(entry, ModuleType) and hasattr(entry, "add_arguments") and hasattr(entry, "run"),
)
"""Name → module, for the verbs of installed packages. The table of the built-in verbs is in pipeline/cli."""


def describe_verbs() -> dict[str, str]:
    """Return name → line for the command line's overview, for the verbs of installed packages.

    The packages are not imported.
    """
    return {name: f"added by the package {describe_origin(VERBS, name)}" for name in VERBS}
