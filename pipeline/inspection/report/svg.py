"""Small charts as inline SVG with a title and a description for screen readers; style.css has the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.core.text import plain

Bin = tuple[float, float, float]
"""From, to, share."""

BARS = 24
_POINTS = 400
"""Maximum number of points of a line; a screen can show no more."""
_LARGEST = 1e300
"""Larger absolute values are not drawn, because the width of a range has to be finite."""
_STYLES = 5
"""Number of line styles (colour and dashes) in style.css."""


def figure(value: float) -> str:
    """Formats a number with four significant digits and thousands separators."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def svg(width: float, height: float, kind: str, title: str, description: str, content: str) -> Markup:
    """Returns a chart.

    Args:
      width: of the chart's coordinate system; the page sets the size.
      height: the same.
      kind: class for the style sheet.
      title: any text; it is escaped.
      description: any text; it is escaped.
      content: SVG, with all texts escaped.
    """
    stretch = ' preserveAspectRatio="none"' if kind == "bars" else ""
    return Markup(  # noqa: S704 - all texts are escaped
        f'<svg class="{kind}" role="img" viewBox="0 0 {width:g} {height:g}"{stretch}>'
        f"<title>{escape(plain(title))}</title><desc>{escape(plain(description, 400))}</desc>{content}</svg>"
    )


def histogram_range(histograms: Sequence[Sequence[Bin]]) -> tuple[float, float]:
    """Returns the range to draw histograms by quantiles over: all bins, except long tails of the outermost bins."""
    histograms = [[each for each in bins if _drawable(*each)] for bins in histograms]
    every = [each for bins in histograms for each in bins]
    if not every:
        return 0.0, 0.0
    low, high = min(each[0] for each in every), max(each[1] for each in every)
    inner = [(each[0], each[1]) for bins in histograms for each in bins[1:-1]]
    if inner:
        first, last = min(each[0] for each in inner), max(each[1] for each in inner)
        margin = 1.5 * (last - first)
        if margin > 0:
            low, high = max(low, first - margin), min(high, last + margin)
    return low, high


def histogram(bins: Sequence[Bin], over: tuple[float, float], title: str) -> Markup:
    """Draws bars of equal width; the first and the last bar include the values outside of the range.

    Args:
      bins: of any width, in order; a bin of no width is a single value.
      over: the range.
      title: of the chart.
    """
    low, high = over
    shares = [0.0] * BARS

    def bar_of(value: float) -> int:
        if high <= low:
            return BARS // 2
        return min(int((min(max(value, low), high) - low) / (high - low) * BARS), BARS - 1)

    for start, stop, share in bins:
        if not _drawable(start, stop, share):
            continue
        first, last = bar_of(start), bar_of(stop)
        width = (high - low) / BARS
        for bar in range(first, last + 1):
            left = start if bar == first else low + bar * width
            right = stop if bar == last else low + (bar + 1) * width
            shares[bar] += share * min((right - left) / (stop - start), 1.0) if stop > start else share
    most = max(range(BARS), key=lambda bar: shares[bar])
    peak = (
        f"most between {figure(low + most * (high - low) / BARS)} and {figure(low + (most + 1) * (high - low) / BARS)}"
    )
    description = f"from {figure(low)} to {figure(high)}, {peak}" if high > low else f"all {figure(low)}"
    return bars(shares, max(shares), title, description)


def bars(shares: Sequence[float], tallest: float, title: str, description: str) -> Markup:
    """Draws a bar for each share.

    Args:
      shares: 0 to 1.
      tallest: the share that is as high as the chart, so that charts can be compared.
      title: of the chart.
      description: of the chart.
    """
    heights = [max(38 * share / (tallest or 1.0), 1) if share > 0 else 0.0 for share in shares]
    path = "".join(f"M{5 * at:g} 40v{-height:.1f}h4v{height:.1f}z" for at, height in enumerate(heights) if height)
    return svg(5 * max(len(shares), 1) - 1, 40, "bars", title, description, f'<path d="{path}"/>')


def ranges(rows: Sequence[tuple[str, float, tuple[float, float] | None]], title: str) -> Markup:
    """Draws a horizontal bar from 0 to each value, with its interval.

    Args:
      rows: name, value and interval of each bar.
      title: of the chart.
    """
    width, left, right, step = 480, 160, 14, 20
    rows = [row for row in rows if _drawable(row[1], *(row[2] or ()))]
    if not rows:
        return svg(width, step, "chart", title, "no finite value", "")
    ends = [end for _, value, interval in rows for end in (value, *(interval or ()))]
    marks = _marks(min(0.0, *ends), max(0.0, *ends))
    least, most = marks[0], marks[-1]
    height = step * len(rows) + 26

    def x_of(x: float) -> float:
        return left + (width - left - right) * ((x - least) / (most - least) if most > least else 0.5)

    parts = [
        f'<path class="grid" d="M{x_of(x):.1f} 4V{height - 22}"/>'
        f'<text x="{x_of(x):.1f}" y="{height - 8}" text-anchor="middle">{_mark(x)}</text>'
        for x in marks
    ]
    for number, (name, value, interval) in enumerate(rows):
        y, start, stop = step * number + 14, min(x_of(0.0), x_of(value)), max(x_of(0.0), x_of(value))
        parts.append(
            f'<text x="{left - 8}" y="{y + 3.5:g}" text-anchor="end">{escape(plain(name, 26))}</text>'
            f'<rect class="range" x="{start:.1f}" y="{y - 6}" width="{max(stop - start, 1):.1f}" height="12"/>'
        )
        if interval:
            low, high = map(x_of, interval)
            parts.append(
                f'<path class="whisker" d="M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 3}v6M{high:.1f} {y - 3}v6"/>'
            )
    described = "; ".join(f"{name}: {figure(value)}" for name, value, _ in rows)
    return svg(width, height, "chart", title, described, "".join(parts))


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    x_axis: str = "step",
    x_label: Callable[[float], str] = figure,
    without_dots: Collection[str] = (),
    description: str | None = None,
) -> Markup:
    """Draws a line for each series.

    Args:
      series: name → points (x, y), in order of x.
      title: of the chart.
      x_axis: name of the x axis.
      x_label: formats a value of x.
      without_dots: series without dots: the references that others are compared with.
      description: of the chart; None: the first and the last value of each series.
    """
    width, height, left, right, top, bottom = 340, 170, 52, 10, 10, 26
    series = {name: [point for point in line if _drawable(*point)] for name, line in series.items()}
    points = [point for line in series.values() for point in line]
    if not points:
        return svg(width, height, "chart", title, "no finite value", "")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    first, last = min(xs), max(xs)
    marks = _marks(min(ys), max(ys))
    least, most = marks[0], marks[-1]

    def x_of(x: float) -> float:
        return left + (width - left - right) * ((x - first) / (last - first) if last > first else 0.5)

    def y_of(y: float) -> float:
        return height - bottom - (height - top - bottom) * ((y - least) / (most - least) if most > least else 0.5)

    parts = [
        f'<path class="grid" d="M{left} {y_of(y):.1f}H{width - right}"/>'
        f'<text x="{left - 6}" y="{y_of(y) + 3.5:.1f}" text-anchor="end">{_mark(y)}</text>'
        for y in marks
    ]
    middle = (left + width - right) / 2
    if last > first:
        labels = [(left, "start", x_label(first)), (middle, "middle", x_axis), (width - right, "end", x_label(last))]
    else:
        labels = [(middle, "middle", f"{x_axis} {x_label(first)}")]
    parts += [
        f'<text x="{x:g}" y="{height - 8}" text-anchor="{anchor}">{escape(plain(text))}</text>'
        for x, anchor, text in labels
    ]
    for number, (name, line) in enumerate(series.items()):
        style = number % _STYLES
        drawn = thinned(line)
        coordinates = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in drawn)
        parts.append(f'<polyline class="line s{style}" points="{coordinates}"/>')
        if len(drawn) <= 30 and name not in without_dots:
            parts += [f'<circle class="dot s{style}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.4"/>' for x, y in drawn]
    ends = "; ".join(
        f"{name}: from {figure(line[0][1])} to {figure(line[-1][1])}" for name, line in series.items() if line
    )
    return svg(width, height, "chart", title, ends if description is None else description, "".join(parts))


def _drawable(*values: float) -> bool:
    return all(abs(value) < _LARGEST for value in values)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns at most 400 points, evenly chosen, and the last one."""
    every = max(1, math.ceil(len(points) / _POINTS))
    return [*points[:-1:every], *points[-1:]]


def _mark(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def _marks(least: float, most: float) -> list[float]:
    """Returns three to six round numbers that enclose a range."""
    # Of the smallest numbers of all, powers of ten are inexact or 0.
    if most - least <= max(abs(most) * 1e-9, 1e-300):
        return [float(f"{least:.4g}")]
    rough = (most - least) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    start, stop = math.floor(least / step), math.ceil(most / step)
    return [float(f"{number * step:.12g}") for number in range(start, stop + 1)]
