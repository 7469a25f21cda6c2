"""No module imports itself through others, not even inside a function or for types alone."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("components", "pipeline", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"cycle of imports: {' -> '.join(error.args[1])}; move what both need to a module of its own")
