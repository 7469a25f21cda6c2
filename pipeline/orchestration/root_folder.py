"""The root folder of what an orchestrator is given: written on one machine, and read where the folder is another one.

In files for orchestrators, paths below the root folder begin with ROOT. Other paths, such as that of a shared disk, are
the same on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = "$TFX_PIPELINE_ROOT"
"""In place of the root folder; the environment variable from which Airflow's DAG takes it."""


def without_root(value: Any, root: Path, instead: str = ROOT) -> Any:
    """Replace a folder in all strings, also within longer ones, such as JSON.

    Args:
      value: a string, or lists and mappings with strings.
      root: the folder, absolute.
      instead: what replaces it.
    """
    names = "|".join(re.escape(name) for name in {str(root), json.dumps(str(root))[1:-1]})
    # Not in the middle of a path, and not a folder whose name only begins with it.
    pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])")
    return _mapped(value, lambda text: pattern.sub(lambda _: instead, text))


def ir_without_root(ir: bytes, root: Path) -> bytes:
    """Replace a folder in a compiled pipeline by ROOT."""
    return _changed(ir, lambda content: without_root(content, root))


def ir_with_root(ir: bytes, root: Path) -> bytes:
    """Replace ROOT in a compiled pipeline by a folder of this machine; return one without ROOT as it is."""
    if ROOT.encode() not in ir:
        return ir
    return _changed(ir, lambda content: _mapped(content, lambda text: text.replace(ROOT, str(root))))


def _changed(ir: bytes, change: Callable[[Any], Any]) -> bytes:
    # Imported late: TFX is, and the caller sets TensorFlow's environment first.
    from google.protobuf import json_format
    from tfx.proto.orchestration import pipeline_pb2

    content = json_format.MessageToDict(pipeline_pb2.Pipeline.FromString(ir))
    changed = json_format.ParseDict(change(content), pipeline_pb2.Pipeline())
    return bytes(changed.SerializeToString(deterministic=True))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(each, change) for name, each in value.items()}
    return [_mapped(each, change) for each in value] if isinstance(value, list) else value
