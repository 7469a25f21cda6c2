"""What holds for every test: one Keras, quiet native logs, no accelerator, the project's root as working directory,
and, where there are the rights for it a network without an outside.
"""

from __future__ import annotations

import os
from pathlib import Path

import private_network

# Before anything imports TensorFlow, as the nodes' server does it too.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

private_network.enter()

ROOT = Path(__file__).parent.parent
os.chdir(ROOT)
