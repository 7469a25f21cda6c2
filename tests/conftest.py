"""What holds for every test: one Keras, quiet native logs, no accelerator, the project's root as working directory,
and, where there are the rights for it, a network without an outside. And what tests of several folders share.
"""

from __future__ import annotations

import os
from pathlib import Path

import private_network
import pytest
import training
from training import Prepared

# Before anything imports TensorFlow, as the nodes' server does it too.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

private_network.enter()

ROOT = Path(__file__).parent.parent
os.chdir(ROOT)

_LONGEST_NAME = 100


def pytest_itemcollected(item: pytest.Item) -> None:
    """Side by side, a file's tests stay together, and so do files that say they share what they look at."""
    if not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_make_parametrize_id(val: object) -> str | None:
    """What a test is given is in its name, which goes to and fro between processes: not all of a hundred megabytes."""
    if isinstance(val, bytes | str) and len(val) > _LONGEST_NAME:
        return f"{val[:_LONGEST_NAME]!a}...{len(val)}"
    return None


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Made people up to Transform, for trainings; by whichever of the processes that run tests asks first."""
    here = tmp_path_factory.getbasetemp()
    return training.prepared((here.parent if "PYTEST_XDIST_WORKER" in os.environ else here) / "prepared")
