"""Draws a run's nodes from top to bottom, each below those it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.metadata.words import duration, plain
from pipeline.report.charts import svg

MOST = 60
"""Nodes that are drawn at most; the table has all of them."""
_WIDE, _TALL, _BESIDE, _BELOW = 156, 44, 16, 24


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
    rows = _rows(arrows)
    across = max(len(row) for row in rows)
    width = across * (_WIDE + _BESIDE) - _BESIDE + 2
    height = len(rows) * (_TALL + _BELOW) - _BELOW + 2
    places = {}
    for down, row in enumerate(rows):
        left = (width - len(row) * (_WIDE + _BESIDE) + _BESIDE) / 2
        for at, name in enumerate(row):
            places[name] = (left + at * (_WIDE + _BESIDE), 1 + down * (_TALL + _BELOW))
    parts = [_arrow(places[above], places[name]) for name, several in arrows.items() for above in several]
    parts += [_box(name, nodes[name], *places[name]) for name in nodes]
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


def _rows(arrows: Mapping[str, Sequence[str]]) -> list[list[str]]:
    depth: dict[str, int] = {}
    for name, several in arrows.items():
        depth[name] = 1 + max((depth.get(one, -1) for one in several), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, down in depth.items():
        rows[down].append(name)
    return rows


def _arrow(source: tuple[float, float], target: tuple[float, float]) -> str:
    x, y = source[0] + _WIDE / 2, source[1] + _TALL
    to_x, to_y = target[0] + _WIDE / 2, target[1]
    middle = (y + to_y) / 2
    return f'<path class="arrow" d="M{x:g} {y:g}C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"/>'


def _box(name: str, node: Mapping[str, object], x: float, y: float) -> str:
    state, seconds = plain(node["state"], 20), node["seconds"]
    style = "state-" + "".join(sign if sign.isalpha() else "-" for sign in state)
    took = f" · {duration(seconds)}" if isinstance(seconds, (int, float)) and seconds > 0 else ""
    return (
        f'<g class="{escape(style)}"><rect class="box" x="{x:g}" y="{y:g}" width="{_WIDE}" height="{_TALL}" rx="6"/>'
        f'<rect class="mark" x="{x:g}" y="{y + 7:g}" width="4" height="{_TALL - 14}" rx="2"/>'
        f'<text class="name" x="{x + 14:g}" y="{y + 19:g}">{escape(plain(name, 21))}</text>'
        f'<text class="state" x="{x + 14:g}" y="{y + 35:g}">{escape(state)}{escape(took)}</text></g>'
    )
