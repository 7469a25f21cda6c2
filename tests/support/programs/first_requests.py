"""Loads a version as the server does, and sends each signature its first request; run as a separate process.

python first_requests.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[3]))

from components.serving.server.model_manager import load_verified
from components.serving.server.saved_model import TensorSpec


def _rows(spec: TensorSpec) -> np.ndarray:
    """Return rows that differ from every warm-up request in their number and values."""
    value = b"" if spec.dtype == tf.string else 1
    return np.full([7, *(max(size, 2) for size in (spec.shape or ())[1:])], value, spec.dtype.as_numpy_dtype)


model = load_verified(None, True, 1, Path(sys.argv[1]))
sys.stderr.write("every signature is warmed up\n")
for signature in model.signatures.values():
    signature.run({name: _rows(spec) for name, spec in signature.inputs.items()})
sys.stderr.write(f"answered {len(model.signatures)} signatures\n")
