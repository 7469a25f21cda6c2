"""Draws a run's nodes from top to bottom, each below those it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.metadata.words import duration, plain
from pipeline.report.charts import svg

MOST = 60
"""Nodes that are drawn at most; the table has all of them."""
_WIDE, _TALL, _BESIDE, _BELOW = 156, 44, 16, 24
_ACROSS = 2
"""Nodes in a row; with more of them a phone shows none that can be read."""
_NARROW = 12
"""Of a gap for an arrow."""


def draw(nodes: Mapping[str, Mapping[str, object]], upstream: Mapping[str, Sequence[str]]) -> Markup | None:
    """The graph; what already follows from other arrows is not drawn once more.

    Args:
      nodes: by name, in an order in which each stands behind those it waits for; with `state` and `seconds`.
      upstream: node → those it waits for.

    Returns:
      None where there are too many nodes for a picture.
    """
    if not nodes or len(nodes) > MOST:
        return None
    arrows = reduced({name: [one for one in upstream.get(name, ()) if one in nodes and one != name] for name in nodes})
    rows, ways = _rows(arrows)
    widths = [[_WIDE if place in nodes else _NARROW for place in row] for row in rows]
    width = max(sum(each) + _BESIDE * (len(each) - 1) for each in widths) + 2
    height = len(rows) * (_TALL + _BELOW) - _BELOW + 2
    places = {}
    for down, (row, wide) in enumerate(zip(rows, widths, strict=True)):
        left = (width - sum(wide) - _BESIDE * (len(row) - 1)) / 2
        for place, across in zip(row, wide, strict=True):
            places[place] = (left + across / 2, 1 + down * (_TALL + _BELOW))
            left += across + _BESIDE
    parts = [_arrow([places[place] for place in way]) for way in ways]
    parts += [_box(name, nodes[name], places[name][0] - _WIDE / 2, places[name][1]) for name in nodes]
    told = "; ".join(f"{name} {nodes[name]['state']}" for name in nodes)
    return svg(width, height, "graph", "The pipeline's nodes, each below those it waits for", told, "".join(parts))


def reduced(upstream: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The same order with the fewest arrows: none to a node that another one already leads to."""
    above: dict[str, set[str]] = {}
    for name in upstream:
        direct = upstream[name]
        above[name] = {*direct, *(far for one in direct for far in above.get(one, ()))}
    return {
        name: [one for one in dict.fromkeys(direct) if not any(one in above.get(other, ()) for other in direct)]
        for name, direct in upstream.items()
    }


def _rows(arrows: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """The nodes of each row, with a gap wherever an arrow passes through, and the way of each arrow, gaps included."""
    depth: dict[str, int] = {}
    for name, several in arrows.items():
        depth[name] = 1 + max((depth.get(one, -1) for one in several), default=-1)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, down in depth.items():
        layers[down].append(name)
    rows = [layer[at : at + _ACROSS] for layer in layers for at in range(0, len(layer), _ACROSS)]
    depth = {name: down for down, row in enumerate(rows) for name in row}
    ways = []
    for name, several in arrows.items():
        for above in several:
            gaps = {down: f"\n{above}\n{name}\n{down}" for down in range(depth.get(above, 0) + 1, depth[name])}
            for down, gap in gaps.items():
                rows[down].append(gap)
            ways.append([above, *gaps.values(), name])
    return rows, ways


def _arrow(places: Sequence[tuple[float, float]]) -> str:
    """From the lower edge of the first place to the upper edge of the last, straight down through those between."""
    x, y = places[0][0], places[0][1] + _TALL
    path = f"M{x:g} {y:g}"
    for number, (to_x, to_y) in enumerate(places[1:], start=2):
        middle = (y + to_y) / 2
        path += f"C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
        x, y = to_x, to_y
        if number < len(places):
            y += _TALL
            path += f"V{y:g}"
    return f'<path class="arrow" d="{path}"/>'


def _box(name: str, node: Mapping[str, object], x: float, y: float) -> str:
    state, seconds = plain(node["state"], 20), node["seconds"]
    style = "state-" + "".join(sign if sign.isalpha() else "-" for sign in state)
    took = f" · {duration(seconds)}" if isinstance(seconds, (int, float)) and seconds > 0 else ""
    return (
        f'<g class="{escape(style)}"><rect class="box" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_TALL}" rx="6"/>'
        f'<rect class="mark" x="{x:g}" y="{y + 7:g}" width="4" height="{_TALL - 14}" rx="2"/>'
        f'<text class="name" x="{x + 14:g}" y="{y + 19:g}">{escape(plain(name, 18))}</text>'
        f'<text class="state" x="{x + 14:g}" y="{y + 35:g}">{escape(state)}{escape(took)}</text></g>'
    )
