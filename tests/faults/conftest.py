"""What the fault tests of training share: the taxi example up to Transform, and undisturbed trainings on it."""

from __future__ import annotations

import pytest
import training
from training import Prepared


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return training.prepare(tmp_path_factory.mktemp("prepared"))
