"""Imports what nodes and Beam's workers need, for a process that forks them."""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

from components.base.node import OptionalNode
from components.compat.jsonschema import import_jsonschema
from components.compat.tensorflow import set_environment
from pipeline.core.nodes import NODES

_PLANS = ("data_gate", "edge", "evaluator", "features", "monitor", "predictor", "pusher", "trainer", "tuner")
MODULES = (
    # All config sections first: a section reads its fields' docstrings from its source, which it looks for among all
    # imported modules; once TensorFlow's are imported, that takes a second.
    "pipeline.authoring.config.root",
    "components.pusher.serving_state",
    "components.results.request_schema",
    *(f"components.{each}.plan" for each in _PLANS),
    "tensorflow",
    "tf_keras",
    "apache_beam",
    "apache_beam.runners.direct.direct_runner",
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    # This imports tfx.components, and so TFT, TFDV and TFMA. tfx.v1 would also import Google Cloud's clients, which
    # takes a third longer and is not needed.
    "pipeline.orchestration.node",
    "pipeline.authoring.build",
    *(node.component.partition(":")[0] for node in NODES.built_in.values() if isinstance(node, OptionalNode)),
    "pipeline.inspection.run_summary",
    "pipeline.inspection.report.write",
)


def import_all() -> None:
    """Import MODULES into this process, without starting a thread of TensorFlow's runtime; errors are printed only.

    A module that cannot be imported fails again in the process that needs it, and is in its log.
    """
    set_environment()
    # Imports create millions of objects and hardly any garbage.
    gc.disable()
    import_jsonschema()
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception:
            traceback.print_exc(file=sys.stderr)
    # Objects that the collector never visits again stay in pages that all children share.
    gc.collect()
    gc.freeze()
    gc.enable()
