"""The graph of a run's nodes as SVG, from top to bottom, each node below the nodes it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.core.text import duration, plain
from pipeline.inspection.report.svg import svg

MOST = 60
"""Maximum number of nodes in a graph; the table has all of them."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 156, 44, 16, 24
"""Of a node's box, and between boxes."""
_PER_ROW = 2
"""Nodes in a row; with more, a phone shows no readable names."""
_PASSAGE = 12
"""Width of a passage for an arrow between the boxes of a row."""


def draw(nodes: Mapping[str, Mapping[str, object]], upstream: Mapping[str, Sequence[str]]) -> Markup | None:
    """Draws the graph, without dependencies that follow from others.

    Args:
      nodes: by name, each after the nodes it depends on; with `state` and `seconds`.
      upstream: node → the nodes it depends on.

    Returns:
      The SVG; None if there are too many nodes.
    """
    if not nodes or len(nodes) > MOST:
        return None
    dependencies = {name: [one for one in upstream.get(name, ()) if one in nodes and one != name] for name in nodes}
    rows, paths = _rows(transitive_reduction(dependencies))
    widths = [[_WIDTH if item in nodes else _PASSAGE for item in row] for row in rows]
    width = max(sum(each) + _GAP_X * (len(each) - 1) for each in widths) + 2
    height = len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2
    tops = {}
    for number, (row, row_widths) in enumerate(zip(rows, widths, strict=True)):
        left = (width - sum(row_widths) - _GAP_X * (len(row) - 1)) / 2
        for item, item_width in zip(row, row_widths, strict=True):
            tops[item] = (left + item_width / 2, 1 + number * (_HEIGHT + _GAP_Y))
            left += item_width + _GAP_X
    parts = [_arrow([tops[item] for item in path]) for path in paths]
    parts += [_box(name, nodes[name], tops[name][0] - _WIDTH / 2, tops[name][1]) for name in nodes]
    states = "; ".join(f"{name} {nodes[name]['state']}" for name in nodes)
    title = "The pipeline's nodes, each below the nodes it depends on"
    return svg(width, height, "graph", title, states, "".join(parts))


def transitive_reduction(upstream: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Removes each dependency of a node that another of its dependencies already has.

    Args:
      upstream: node → the nodes it depends on, each node after these.
    """
    above: dict[str, set[str]] = {}
    for name in upstream:
        direct = upstream[name]
        above[name] = {*direct, *(far for one in direct for far in above.get(one, ()))}
    return {
        name: [one for one in dict.fromkeys(direct) if not any(one in above.get(other, ()) for other in direct)]
        for name, direct in upstream.items()
    }


def _rows(arrows: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the nodes of each row, with passages for arrows that cross it, and each arrow's path with passages."""
    depth: dict[str, int] = {}
    for name, dependencies in arrows.items():
        depth[name] = 1 + max((depth.get(one, -1) for one in dependencies), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, number in depth.items():
        layers[number].append(name)
    rows = [layer[at : at + _PER_ROW] for layer in layers for at in range(0, len(layer), _PER_ROW)]
    depth = {name: number for number, row in enumerate(rows) for name in row}
    paths = []
    for name, dependencies in arrows.items():
        for above in dependencies:
            # A line break is in no node's name.
            crossed = range(depth.get(above, 0) + 1, depth[name])
            passages = {number: f"\n{above}\n{name}\n{number}" for number in crossed}
            for number, passage in passages.items():
                rows[number].append(passage)
            paths.append([above, *passages.values(), name])
    return rows, paths


def _arrow(tops: Sequence[tuple[float, float]]) -> str:
    """Draws an arrow from the lower edge of the first item to the upper edge of the last, vertical in passages."""
    x, y = tops[0][0], tops[0][1] + _HEIGHT
    path = f"M{x:g} {y:g}"
    for number, (to_x, to_y) in enumerate(tops[1:], start=2):
        middle = (y + to_y) / 2
        path += f"C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
        x, y = to_x, to_y
        if number < len(tops):
            y += _HEIGHT
            path += f"V{y:g}"
    return f'<path class="arrow" d="{path}"/>'


def _box(name: str, node: Mapping[str, object], x: float, y: float) -> str:
    state, seconds = plain(node["state"], 20), node["seconds"]
    style = "state-" + "".join(char if char.isalpha() else "-" for char in state)
    took = f" · {duration(seconds)}" if isinstance(seconds, (int, float)) and seconds > 0 else ""
    return (
        f'<g class="{escape(style)}"><rect class="box" x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<rect class="mark" x="{x:g}" y="{y + 7:g}" width="4" height="{_HEIGHT - 14}" rx="2"/>'
        f'<text class="name" x="{x + 14:g}" y="{y + 19:g}">{escape(plain(name, 18))}</text>'
        f'<text class="state" x="{x + 14:g}" y="{y + 35:g}">{escape(state)}{escape(took)}</text></g>'
    )
