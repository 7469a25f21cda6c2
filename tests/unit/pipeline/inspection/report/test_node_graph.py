"""Tests for the drawing of a pipeline's graph: the arrangement of its nodes and the paths of its arrows."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from pipeline.inspection.report.node_graph import MOST, draw, transitive_reduction
from tests.support.runs.report_runs import HARM


def make_nodes(*names: str) -> dict[str, dict[str, object]]:
    return {name: {"state": "done", "seconds": 1.5} for name in names}


def test_implied_edges_are_removed():
    upstream = {"A": (), "B": ("A",), "C": ("A", "B"), "D": ("A", "C", "B")}
    assert transitive_reduction(upstream) == {"A": [], "B": ["A"], "C": ["B"], "D": ["C"]}


def test_arrow_passes_beside_the_nodes_that_it_crosses():
    graph = draw(make_nodes("A", "S", "B", "C"), {"B": ("A",), "C": ("B", "S")})
    root = ET.fromstring(str(graph))  # noqa: S314 - our own
    boxes = {str(box.findtext("text")): box.find("rect") for box in root.iter("g")}
    box_between = boxes["B"]
    assert box_between is not None
    [arrow] = [path.get("d") or "" for path in root.findall("path") if "V" in (path.get("d") or "")]
    # The vertical part of the arrow is to the right of the box that it passes.
    arrow_x = float(arrow.split("V")[0].split()[-2])
    assert arrow_x > float(box_between.get("x") or 0) + float(box_between.get("width") or 0)


def test_independent_nodes_are_arranged_in_several_rows():
    root = ET.fromstring(str(draw(make_nodes(*"ABCDE", "Z"), {"Z": tuple("ABCDE")})))  # noqa: S314 - our own
    boxes = [box.find("rect") for box in root.iter("g")]
    tops = [float(box.get("y") or 0) for box in boxes if box is not None]
    assert tops == sorted(tops)
    assert len(set(tops)) == 4
    assert float((root.get("viewBox") or "").split()[2]) < 450


def test_every_node_is_drawn_with_its_state():
    graph = str(draw({"A": {"state": "done", "seconds": 2.0}, "B": {"state": "not run", "seconds": 0.0}}, {}))
    assert "<desc>A done; B not run</desc>" in graph
    assert "done · 2.0 s" in graph
    assert 'class="state-not-run"' in graph


def test_hostile_names_are_escaped():
    graph = str(draw({HARM: {"state": HARM, "seconds": 1.0}}, {HARM: (HARM, "gone")}))
    ET.fromstring(graph)  # noqa: S314 - our own
    assert "<script" not in graph


def test_graph_is_not_drawn_without_nodes_or_with_too_many():
    many_nodes = make_nodes(*(str(number) for number in range(MOST + 1)))
    assert draw(many_nodes, {}) is None
    assert draw({}, {}) is None
