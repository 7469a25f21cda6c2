"""Replace the root folder in files for orchestrators, which are written on one machine and read on another.

In such files, paths below the root folder begin with ROOT, because the folder differs between machines. Other paths,
such as the path of a shared disk, are the same on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = "$TFX_PIPELINE_ROOT"
"""Stands for the root folder in paths. Airflow's DAG reads the folder from the environment variable of this name."""


def without_root(value: Any, root: Path, instead: str = ROOT) -> Any:
    """Replace a folder in all strings, also inside longer strings such as JSON.

    Args:
      value: A string, or nested lists and mappings of strings.
      root: Absolute path of the folder.
      instead: Text that replaces the folder.
    """
    names = "|".join(re.escape(name) for name in {str(root), json.dumps(str(root))[1:-1]})
    # Do not match in the middle of a path, nor a folder whose name only begins with the name of this folder.
    pattern = re.compile(rf"(?<![\w./-])(?:{names})(?![\w.-])")
    return _map_strings(value, lambda text: pattern.sub(lambda _: instead, text))


def ir_without_root(ir: bytes, root: Path) -> bytes:
    """Replace a folder by ROOT in a compiled pipeline."""
    return _change_ir(ir, lambda content: without_root(content, root))


def ir_with_root(ir: bytes, root: Path) -> bytes:
    """Replace ROOT by a folder of this machine in a compiled pipeline; without ROOT, return the pipeline unchanged."""
    if ROOT.encode() not in ir:
        return ir
    return _change_ir(ir, lambda content: _map_strings(content, lambda text: text.replace(ROOT, str(root))))


def _change_ir(ir: bytes, change: Callable[[Any], Any]) -> bytes:
    # Imported here because the caller must set TensorFlow's environment before TFX is imported.
    from google.protobuf import json_format
    from tfx.proto.orchestration import pipeline_pb2

    content = json_format.MessageToDict(pipeline_pb2.Pipeline.FromString(ir))
    changed = json_format.ParseDict(change(content), pipeline_pb2.Pipeline())
    return bytes(changed.SerializeToString(deterministic=True))


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _map_strings(item, change) for name, item in value.items()}
    return [_map_strings(item, change) for item in value] if isinstance(value, list) else value
