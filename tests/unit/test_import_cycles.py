"""Tests that imports do not have cycles, not even through imports inside functions or only for types."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_modules_do_not_import_themselves_through_other_modules() -> None:
    graph = grimp.build_graph("components", "pipeline", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"cycle of imports: {' -> '.join(error.args[1])}; move what both need to a module of its own")
