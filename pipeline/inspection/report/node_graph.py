"""Draws the graph of a run's nodes as SVG. Every node is below the nodes that it depends on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean

from markupsafe import Markup, escape

from pipeline.core.text import format_duration, plain
from pipeline.inspection.report.svg import make_svg

MOST = 60
"""Maximum number of nodes in a graph. For larger pipelines, the report shows only the table of nodes."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 156, 44, 16, 24
"""Size of a node's box, and gaps between boxes, in SVG units."""
_PER_ROW = 2
"""Maximum number of nodes per row. With more nodes, their names are not readable on a phone."""
_PASSAGE = 12
"""Width of a passage through which an arrow crosses a row of boxes."""


def draw(nodes: Mapping[str, Mapping[str, object]], upstream: Mapping[str, Sequence[str]]) -> Markup | None:
    """Draw the graph. Dependencies that follow from other dependencies are left out.

    Args:
      nodes: Nodes by name, with the keys `state` and `seconds`. A node comes after the nodes that it depends on.
      upstream: Names of the nodes that a node depends on, by node.

    Returns:
      The SVG. None if there are no nodes or too many nodes.
    """
    if not nodes or len(nodes) > MOST:
        return None
    dependencies = {
        name: [dependency for dependency in upstream.get(name, ()) if dependency in nodes and dependency != name]
        for name in nodes
    }
    rows, paths = _arrange(transitive_reduction(dependencies))
    widths = [[_WIDTH if item in nodes else _PASSAGE for item in row] for row in rows]
    width = max(sum(row_widths) + _GAP_X * (len(row_widths) - 1) for row_widths in widths) + 2
    height = len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2
    tops = {}
    for number, (row, row_widths) in enumerate(zip(rows, widths, strict=True)):
        left_edge = (width - sum(row_widths) - _GAP_X * (len(row) - 1)) / 2
        for item, item_width in zip(row, row_widths, strict=True):
            tops[item] = (left_edge + item_width / 2, 1 + number * (_HEIGHT + _GAP_Y))
            left_edge += item_width + _GAP_X
    parts = [_draw_arrow([tops[item] for item in path]) for path in paths]
    parts += [_draw_box(name, nodes[name], tops[name][0] - _WIDTH / 2, tops[name][1]) for name in nodes]
    states = "; ".join(f"{name} {nodes[name]['state']}" for name in nodes)
    title = "The pipeline's nodes, each below the nodes it depends on"
    return make_svg(width, height, "graph", title, states, "".join(parts))


def transitive_reduction(upstream: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Remove the dependencies of a node that it also has indirectly, through another dependency.

    Args:
      upstream: Names of the nodes that a node depends on, by node. A node comes after the nodes that it depends on.
    """
    ancestors: dict[str, set[str]] = {}
    for name, direct in upstream.items():
        indirect = (ancestor for dependency in direct for ancestor in ancestors.get(dependency, ()))
        ancestors[name] = {*direct, *indirect}
    return {
        name: [
            dependency
            for dependency in dict.fromkeys(direct)
            if not any(dependency in ancestors.get(sibling, ()) for sibling in direct)
        ]
        for name, direct in upstream.items()
    }


def _arrange(arrows: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Arrange nodes in rows.

    Args:
      arrows: Names of the nodes that have an arrow to a node, by node.

    Returns:
      The rows and the paths of the arrows. A row contains names of nodes, and names of passages for arrows that cross
      it. A path consists of the first node, the passages and the last node.
    """
    depth: dict[str, int] = {}
    for name, dependencies in arrows.items():
        depth[name] = 1 + max((depth.get(dependency, -1) for dependency in dependencies), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, number in depth.items():
        layers[number].append(name)
    rows = [layer[at : at + _PER_ROW] for layer in layers for at in range(0, len(layer), _PER_ROW)]
    depth = {name: number for number, row in enumerate(rows) for name in row}
    paths = []
    for name, dependencies in arrows.items():
        for above in dependencies:
            # A line break distinguishes the names of passages from names of nodes, which do not contain it.
            crossed_rows = range(depth.get(above, 0) + 1, depth[name])
            passages = {number: f"\n{above}\n{name}\n{number}" for number in crossed_rows}
            for number, passage in passages.items():
                rows[number].append(passage)
            paths.append([above, *passages.values(), name])
    _order_rows(rows, paths)
    return rows, paths


def _order_rows(rows: list[list[str]], paths: list[list[str]]) -> None:
    """Sort each row by the mean positions of the items it is connected to, so that few arrows cross.

    Source: Sugiyama, Tagawa and Toda, Methods for Visual Understanding of Hierarchical System Structures, 1981.
    """
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for path in paths:
        for upper, lower in itertools.pairwise(path):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    places: dict[str, float] = {}

    def place(row: list[str]) -> None:
        places.update((item, (number + 0.5) / len(row)) for number, item in enumerate(row))

    for row in rows:
        place(row)
    for neighbours, order in ((above, rows), (below, rows[::-1]), (above, rows)):
        for row in order:
            row.sort(key=lambda item: fmean(map(places.__getitem__, neighbours.get(item, [item]))))
            place(row)


def _draw_arrow(tops: Sequence[tuple[float, float]]) -> str:
    """Draw an arrow from the lower edge of the first item to the upper edge of the last. It is vertical in passages.

    Args:
      tops: Positions (x, y) of the middle of the upper edges: of the first node, the passages, and the last node.
    """
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


def _draw_box(name: str, node: Mapping[str, object], x: float, y: float) -> str:
    state, seconds = plain(node["state"], 20), node["seconds"]
    style = "state-" + "".join(char if char.isalpha() else "-" for char in state)
    time = f" · {format_duration(seconds)}" if isinstance(seconds, (int, float)) and seconds > 0 else ""
    return (
        f'<g class="{escape(style)}"><rect class="box" x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<rect class="mark" x="{x:g}" y="{y + 7:g}" width="4" height="{_HEIGHT - 14}" rx="2"/>'
        f'<text class="name" x="{x + 14:g}" y="{y + 19:g}">{escape(plain(name, 18))}</text>'
        f'<text class="state" x="{x + 14:g}" y="{y + 35:g}">{escape(state)}{escape(time)}</text></g>'
    )
