"""Small charts as inline SVG, with a title and a description for who does not see them; colours come from the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.metadata.words import plain

Bin = tuple[float, float, float]
"""From, to, share."""

BARS = 24
_POINTS = 400
"""Points of a line at most; a screen shows no more."""
_GREATEST = 1e300
"""What is larger, or no number, is not drawn: the width of a range has to be a number."""
_STYLES = 5
"""How many lines the page's style can tell apart, by colour and by dashes."""


def figure(value: float) -> str:
    """A number as it is told: four digits that count, thousands apart."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def svg(width: float, height: float, kind: str, title: str, description: str, content: str) -> Markup:
    """A chart.

    Args:
      width: of its own coordinates; it is drawn as large as the page has it.
      height: the same.
      kind: class for the style sheet.
      title: what it shows, as text of any kind.
      description: what can be seen in it.
      content: SVG, with everything escaped.
    """
    stretch = ' preserveAspectRatio="none"' if kind == "bars" else ""
    return Markup(  # noqa: S704 - all that comes from outside is escaped here
        f'<svg class="{kind}" role="img" viewBox="0 0 {width:g} {height:g}"{stretch}>'
        f"<title>{escape(plain(title))}</title><desc>{escape(plain(description, 400))}</desc>{content}</svg>"
    )


def span(several: Sequence[Sequence[Bin]]) -> tuple[float, float]:
    """The range that histograms by quantiles are drawn over: all, but for a tail that would press the rest flat."""
    several = [[each for each in one if _drawable(*each)] for one in several]
    bins = [each for one in several for each in one]
    if not bins:
        return 0.0, 0.0
    low, high = min(each[0] for each in bins), max(each[1] for each in bins)
    inner = [(each[0], each[1]) for one in several for each in one[1:-1]]
    if inner:
        first, last = min(each[0] for each in inner), max(each[1] for each in inner)
        room = 1.5 * (last - first)
        if room > 0:
            low, high = max(low, first - room), min(high, last + room)
    return low, high


def histogram(bins: Sequence[Bin], over: tuple[float, float], title: str) -> Markup:
    """Bars of equal width; what lies outside the range is in the first and the last.

    Args:
      bins: of any width, in order; one of no width is a single value.
      over: the range.
      title: what it shows.
    """
    low, high = over
    shares = [0.0] * BARS

    def place(value: float) -> int:
        if high <= low:
            return BARS // 2
        return min(int((min(max(value, low), high) - low) / (high - low) * BARS), BARS - 1)

    for start, stop, share in bins:
        if not _drawable(start, stop, share):
            continue
        first, last = place(start), place(stop)
        width = (high - low) / BARS
        for at in range(first, last + 1):
            left = start if at == first else low + at * width
            right = stop if at == last else low + (at + 1) * width
            shares[at] += share * min((right - left) / (stop - start), 1.0) if stop > start else share
    tallest = max(shares) or 1.0
    path = "".join(
        f"M{5 * at:g} 40v{-max(38 * share / tallest, 1):.1f}h4v{max(38 * share / tallest, 1):.1f}z"
        for at, share in enumerate(shares)
        if share > 0
    )
    most = max(range(BARS), key=lambda at: shares[at])
    where = (
        f"most between {figure(low + most * (high - low) / BARS)} and {figure(low + (most + 1) * (high - low) / BARS)}"
    )
    told = f"from {figure(low)} to {figure(high)}, {where}" if high > low else f"all {figure(low)}"
    return svg(5 * BARS - 1, 40, "bars", title, told, f'<path d="{path}"/>')


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    across: str = "step",
    told: Callable[[float], str] = figure,
    bare: Collection[str] = (),
    description: str | None = None,
) -> Markup:
    """A line for each series.

    Args:
      series: name → points, in order.
      title: what it shows.
      across: what the horizontal axis is.
      told: how a place on it is written.
      bare: series that are lines without dots: what the others are held against.
      description: what can be seen; if not given, from where to where each series goes.
    """
    width, height, left, right, top, bottom = 340, 170, 52, 10, 10, 26
    series = {name: [point for point in several if _drawable(*point)] for name, several in series.items()}
    points = [point for several in series.values() for point in several]
    if not points:
        return svg(width, height, "chart", title, "no number that can be drawn", "")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    first, last = min(xs), max(xs)
    marks = _marks(min(ys), max(ys))
    least, most = marks[0], marks[-1]

    def across_at(x: float) -> float:
        return left + (width - left - right) * ((x - first) / (last - first) if last > first else 0.5)

    def down_at(y: float) -> float:
        return height - bottom - (height - top - bottom) * ((y - least) / (most - least) if most > least else 0.5)

    parts = [
        f'<path class="grid" d="M{left} {down_at(y):.1f}H{width - right}"/>'
        f'<text x="{left - 6}" y="{down_at(y) + 3.5:.1f}" text-anchor="end">{_mark(y)}</text>'
        for y in marks
    ]
    middle = (left + width - right) / 2
    if last > first:
        below = [(left, "start", told(first)), (middle, "middle", across), (width - right, "end", told(last))]
    else:
        below = [(middle, "middle", f"{across} {told(first)}")]
    parts += [
        f'<text x="{x:g}" y="{height - 8}" text-anchor="{anchor}">{escape(plain(text))}</text>'
        for x, anchor, text in below
    ]
    for number, (name, several) in enumerate(series.items()):
        style = number % _STYLES
        shown = thinned(several)
        drawn = " ".join(f"{across_at(x):.1f},{down_at(y):.1f}" for x, y in shown)
        parts.append(f'<polyline class="line s{style}" points="{drawn}"/>')
        if len(shown) <= 30 and name not in bare:
            parts += [
                f'<circle class="dot s{style}" cx="{across_at(x):.1f}" cy="{down_at(y):.1f}" r="2.4"/>'
                for x, y in shown
            ]
    ways = "; ".join(
        f"{name}: from {figure(several[0][1])} to {figure(several[-1][1])}"
        for name, several in series.items()
        if several
    )
    return svg(width, height, "chart", title, ways if description is None else description, "".join(parts))


def _drawable(*values: float) -> bool:
    return all(abs(value) < _GREATEST for value in values)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """No more points than can be seen, the last among them."""
    every = max(1, math.ceil(len(points) / _POINTS))
    return [*points[:-1:every], *points[-1:]]


def _mark(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def _marks(least: float, most: float) -> list[float]:
    """Round numbers that enclose a range, three to six of them."""
    if most - least <= abs(most) * 1e-9:
        return [float(f"{least:.4g}")]
    rough = (most - least) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    start, stop = math.floor(least / step), math.ceil(most / step)
    return [float(f"{at * step:.12g}") for at in range(start, stop + 1)]
