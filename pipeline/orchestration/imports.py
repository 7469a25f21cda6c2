"""Import the modules that nodes and Beam's workers need, in the process from which they are forked."""

from __future__ import annotations

import gc
import importlib
import sys
import traceback

from components.base.node import OptionalNode
from components.compat.imports import speed_up_imports
from components.compat.tensorflow import set_environment
from pipeline.core.nodes import NODES

MODULES = (
    "tensorflow",
    "tf_keras",
    "apache_beam",
    "apache_beam.runners.direct.direct_runner",
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    # This imports tfx.components, and so TFT, TFDV and TFMA. Importing tfx.v1 instead would take a third longer,
    # because it also imports Google Cloud's clients, which are not needed.
    "pipeline.orchestration.node",
    "pipeline.authoring.build",
    *(node.component.partition(":")[0] for node in NODES.built_in.values() if isinstance(node, OptionalNode)),
    "pipeline.inspection.run_summary",
    "pipeline.inspection.report.write",
)


def import_all() -> None:
    """Import MODULES into this process without starting a thread of TensorFlow's runtime.

    Errors are only printed. A module that cannot be imported fails again in the process that needs it, where the error
    is logged.
    """
    set_environment()
    # Imports create millions of objects and hardly any garbage, so that collecting during them only costs time.
    gc.disable()
    speed_up_imports()
    for module in MODULES:
        try:
            importlib.import_module(module)
        except Exception:
            traceback.print_exc(file=sys.stderr)
    if "apache_beam" in sys.modules:
        # Imported late, because this module must be importable even if Beam is not.
        from components.compat.beam import cache_introspection

        cache_introspection()
    # The collector writes into the objects that it visits. Frozen objects stay in memory pages that all children share.
    gc.collect()
    gc.freeze()
    gc.enable()
