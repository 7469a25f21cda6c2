"""The picture of the pipeline: which arrows are drawn, and how they find their way."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from report_runs import HARM

from pipeline.inspection.report.node_graph import MOST, draw, transitive_reduction


def nodes(*names: str) -> dict[str, dict[str, object]]:
    return {name: {"state": "done", "seconds": 1.5} for name in names}


def test_implied_edges_are_removed():
    upstream = {"A": (), "B": ("A",), "C": ("A", "B"), "D": ("A", "C", "B")}
    assert transitive_reduction(upstream) == {"A": [], "B": ["A"], "C": ["B"], "D": ["C"]}


def test_arrow_goes_past_the_nodes_between():
    drawn = draw(nodes("A", "S", "B", "C"), {"B": ("A",), "C": ("B", "S")})
    root = ET.fromstring(str(drawn))  # noqa: S314 - our own
    places = {str(box.findtext("text")): box.find("rect") for box in root.iter("g")}
    between = places["B"]
    assert between is not None
    [passing] = [path.get("d") or "" for path in root.findall("path") if "V" in (path.get("d") or "")]
    # Where it goes straight down is right of the box that stands between.
    straight = float(passing.split("V")[0].split()[-2])
    assert straight > float(between.get("x") or 0) + float(between.get("width") or 0)


def test_many_nodes_side_by_side_take_several_rows():
    root = ET.fromstring(str(draw(nodes(*"ABCDE", "Z"), {"Z": tuple("ABCDE")})))  # noqa: S314 - our own
    boxes = [box.find("rect") for box in root.iter("g")]
    downs = [float(box.get("y") or 0) for box in boxes if box is not None]
    assert downs == sorted(downs)
    assert len(set(downs)) == 4
    assert float((root.get("viewBox") or "").split()[2]) < 450


def test_every_node_is_drawn_with_its_state():
    drawn = str(draw({"A": {"state": "done", "seconds": 2.0}, "B": {"state": "not run", "seconds": 0.0}}, {}))
    assert "<desc>A done; B not run</desc>" in drawn
    assert "done · 2.0 s" in drawn
    assert 'class="state-not-run"' in drawn


def test_names_from_outside_stay_text():
    drawn = str(draw({HARM: {"state": HARM, "seconds": 1.0}}, {HARM: (HARM, "gone")}))
    ET.fromstring(drawn)  # noqa: S314 - our own
    assert "<script" not in drawn


def test_too_many_nodes_make_no_picture():
    many = nodes(*(str(number) for number in range(MOST + 1)))
    assert draw(many, {}) is None
    assert draw({}, {}) is None
