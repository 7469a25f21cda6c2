"""Draws small charts as inline SVG, with a title and a description for screen readers. style.css sets the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from markupsafe import Markup, escape

from pipeline.core.text import plain

Bin = tuple[float, float, float]
"""A bin of a histogram: from, to, share."""

BARS = 24
"""Number of bars in a histogram."""
_POINTS = 400
"""Maximum number of points in a line. More points would not be visible."""
_LARGEST = 1e300
"""Values with this or a larger absolute value are not drawn, because the width of a range must be finite."""
_STYLES = 5
"""Number of line styles (colour and dashes) in style.css."""


def format_figure(value: float) -> str:
    """Format a number with four significant digits and thousands separators."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def make_svg(width: float, height: float, kind: str, title: str, description: str, content: str) -> Markup:
    """Return a chart as an SVG element.

    Args:
      width: Width of the chart's coordinate system. The page sets the size on the screen.
      height: Height of the chart's coordinate system.
      kind: Class of the element in the style sheet.
      title: Title of the chart, which is escaped.
      description: Description for screen readers, which is escaped.
      content: Content of the SVG element. The caller escapes its texts.
    """
    stretch = ' preserveAspectRatio="none"' if kind == "bars" else ""
    return Markup(  # noqa: S704 - all texts are escaped
        f'<svg class="{kind}" role="img" viewBox="0 0 {width:g} {height:g}"{stretch}>'
        f"<title>{escape(plain(title))}</title><desc>{escape(plain(description, 400))}</desc>{content}</svg>"
    )


def choose_histogram_range(histograms: Sequence[Sequence[Bin]]) -> tuple[float, float]:
    """Return the range over which to draw quantiles histograms.

    The range covers all bins, but cuts long tails: it extends beyond the inner bins by at most 1.5 times their range.

    Args:
      histograms: Histograms that are drawn over the same range.
    """
    histograms = [[histogram_bin for histogram_bin in bins if _is_drawable(*histogram_bin)] for bins in histograms]
    all_bins = [histogram_bin for bins in histograms for histogram_bin in bins]
    if not all_bins:
        return 0.0, 0.0
    low, high = min(start for start, _, _ in all_bins), max(stop for _, stop, _ in all_bins)
    inner_bins = [histogram_bin for bins in histograms for histogram_bin in bins[1:-1]]
    if inner_bins:
        first, last = min(start for start, _, _ in inner_bins), max(stop for _, stop, _ in inner_bins)
        margin = 1.5 * (last - first)
        if margin > 0:
            low, high = max(low, first - margin), min(high, last + margin)
    return low, high


def draw_histogram(bins: Sequence[Bin], over: tuple[float, float], title: str) -> Markup:
    """Draw a histogram with bars of equal width. The first and the last bar include the values outside the range.

    Args:
      bins: Bins in ascending order, of any width. A bin of width 0 is a single value.
      over: Range of the chart.
      title: Title of the chart.
    """
    low, high = over
    shares = [0.0] * BARS

    def find_bar(value: float) -> int:
        if high <= low:
            return BARS // 2
        return min(int((min(max(value, low), high) - low) / (high - low) * BARS), BARS - 1)

    for start, stop, share in bins:
        if not _is_drawable(start, stop, share):
            continue
        first, last = find_bar(start), find_bar(stop)
        width = (high - low) / BARS
        for bar in range(first, last + 1):
            bar_start = start if bar == first else low + bar * width
            bar_stop = stop if bar == last else low + (bar + 1) * width
            shares[bar] += share * min((bar_stop - bar_start) / (stop - start), 1.0) if stop > start else share
    if high > low:
        tallest = max(range(BARS), key=lambda bar: shares[bar])
        peak_low, peak_high = (format_figure(low + edge * (high - low) / BARS) for edge in (tallest, tallest + 1))
        description = f"from {format_figure(low)} to {format_figure(high)}, most between {peak_low} and {peak_high}"
    else:
        description = f"all {format_figure(low)}"
    return draw_bars(shares, max(shares), title, description)


def draw_bars(shares: Sequence[float], tallest: float, title: str, description: str) -> Markup:
    """Draw a vertical bar for each share.

    Args:
      shares: Shares, 0 to 1.
      tallest: Share whose bar is as high as the chart. Charts with the same value can be compared.
      title: Title of the chart.
      description: Description of the chart.
    """
    heights = [max(38 * share / (tallest or 1.0), 1) if share > 0 else 0.0 for share in shares]
    path = "".join(f"M{5 * at:g} 40v{-height:.1f}h4v{height:.1f}z" for at, height in enumerate(heights) if height)
    return make_svg(5 * max(len(shares), 1) - 1, 40, "bars", title, description, f'<path d="{path}"/>')


def draw_ranges(rows: Sequence[tuple[str, float, tuple[float, float] | None]], title: str) -> Markup:
    """Draw horizontal bars from 0 to values, with intervals.

    Args:
      rows: Bars as (name, value, interval). The interval is None if it is unknown.
      title: Title of the chart.
    """
    width, left_margin, step = 480, 160, 20
    rows = [row for row in rows if _is_drawable(row[1], *(row[2] or ()))]
    if not rows:
        return make_svg(width, step, "chart", title, "no finite value", "")
    ends = [end for _, value, interval in rows for end in (value, *(interval or ()))]
    marks = _choose_marks(min(0.0, *ends), max(0.0, *ends))
    least, most = marks[0], marks[-1]
    right_margin = 8 + _estimate_width(_format_mark(most)) / 2
    height = step * len(rows) + 26

    def to_x(x: float) -> float:
        share = (x - least) / (most - least) if most > least else 0.5
        return left_margin + (width - left_margin - right_margin) * share

    parts = [
        f'<path class="grid" d="M{to_x(x):.1f} 4V{height - 22}"/>'
        f'<text x="{to_x(x):.1f}" y="{height - 8}" text-anchor="middle">{_format_mark(x)}</text>'
        for x in marks
    ]
    for number, (name, value, interval) in enumerate(rows):
        y, start, stop = step * number + 14, min(to_x(0.0), to_x(value)), max(to_x(0.0), to_x(value))
        parts.append(
            f'<text x="{left_margin - 8}" y="{y + 3.5:g}" text-anchor="end">{escape(plain(name, 26))}</text>'
            f'<rect class="range" x="{start:.1f}" y="{y - 6}" width="{max(stop - start, 1):.1f}" height="12"/>'
        )
        if interval:
            low, high = map(to_x, interval)
            parts.append(
                f'<path class="whisker" d="M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 3}v6M{high:.1f} {y - 3}v6"/>'
            )
    description = "; ".join(f"{name}: {format_figure(value)}" for name, value, _ in rows)
    return make_svg(width, height, "chart", title, description, "".join(parts))


def draw_lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    x_axis: str = "step",
    x_label: Callable[[float], str] = format_figure,
    without_dots: Collection[str] = (),
    description: str | None = None,
    band: Sequence[tuple[float, float, float]] = (),
    x_marks: Collection[float] = (),
    without_lines: bool = False,
) -> Markup:
    """Draw a line for each series.

    Args:
      series: Points (x, y) in ascending order of x, by name of the series.
      title: Title of the chart.
      x_axis: Name of the x axis.
      x_label: Function that formats a value of x.
      without_dots: Names of series whose points are not marked by dots, such as reference lines.
      description: Description of the chart. If None, the first and the last value of the series.
      band: Area behind the lines, as points (x, low, high) in ascending order of x.
      x_marks: Values of x at which vertical lines are drawn, if they are in the range of the points.
      without_lines: Whether only the dots are drawn, because the order of the points has no meaning.
    """
    width, height, right_margin, top_margin, bottom_margin = 340, 170, 10, 10, 26
    series = {name: [point for point in line if _is_drawable(*point)] for name, line in series.items()}
    points = [point for line in series.values() for point in line]
    if not points:
        return make_svg(width, height, "chart", title, "no finite value", "")
    band = [point for point in band if _is_drawable(*point)]
    points += [(x, end) for x, low, high in band for end in (low, high)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    first, last = min(xs), max(xs)
    marks = _choose_marks(min(ys), max(ys))
    least, most = marks[0], marks[-1]
    left_margin = 12 + _estimate_width(max((_format_mark(y) for y in marks), key=len))

    def to_x(x: float) -> float:
        share = (x - first) / (last - first) if last > first else 0.5
        return left_margin + (width - left_margin - right_margin) * share

    def to_y(y: float) -> float:
        share = (y - least) / (most - least) if most > least else 0.5
        return height - bottom_margin - (height - top_margin - bottom_margin) * share

    parts = [
        f'<path class="grid" d="M{left_margin} {to_y(y):.1f}H{width - right_margin}"/>'
        f'<text x="{left_margin - 6}" y="{to_y(y) + 3.5:.1f}" text-anchor="end">{_format_mark(y)}</text>'
        for y in marks
    ]
    parts += [
        f'<path class="mark" d="M{to_x(x):.1f} {top_margin}V{height - bottom_margin}"/>'
        for x in x_marks
        if first <= x <= last
    ]
    middle = (left_margin + width - right_margin) / 2
    if last > first:
        labels = [
            (left_margin, "start", x_label(first)),
            (middle, "middle", x_axis),
            (width - right_margin, "end", x_label(last)),
        ]
    else:
        labels = [(middle, "middle", f"{x_axis} {x_label(first)}")]
    parts += [
        f'<text x="{x:g}" y="{height - 8}" text-anchor="{anchor}">{escape(plain(text))}</text>'
        for x, anchor, text in labels
    ]
    if band:
        outline = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
        corners = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in outline)
        parts.append(f'<polygon class="band" points="{corners}"/>')
    for number, (name, line) in enumerate(series.items()):
        style = number % _STYLES
        shown = thin_out(line)
        coordinates = " ".join(f"{to_x(x):.1f},{to_y(y):.1f}" for x, y in shown)
        if not without_lines:
            parts.append(f'<polyline class="line s{style}" points="{coordinates}"/>')
        if without_lines or (len(shown) <= 30 and name not in without_dots):
            parts += [f'<circle class="dot s{style}" cx="{to_x(x):.1f}" cy="{to_y(y):.1f}" r="2.4"/>' for x, y in shown]
    ends = "; ".join(
        f"{name}: from {format_figure(line[0][1])} to {format_figure(line[-1][1])}"
        for name, line in series.items()
        if line
    )
    return make_svg(width, height, "chart", title, ends if description is None else description, "".join(parts))


def draw_points(series: Mapping[str, Sequence[tuple[float, float]]], title: str, x_axis: str, is_log: bool) -> Markup:
    """Draw a dot for each point.

    Args:
      series: Points (x, y) in ascending order of x, by name of the series.
      title: Title of the chart.
      x_axis: Name of the x axis.
      is_log: Whether x is the logarithm to the base 10 of the value to write at the axis.
    """

    def format_x(x: float) -> str:
        return f"{10**x:.3g}" if is_log else format_figure(x)

    points = [point for line in series.values() for point in line]
    lowest = min(points, key=lambda point: point[1], default=None)
    description = f"lowest at {x_axis} {format_x(lowest[0])}: {format_figure(lowest[1])}" if lowest else "no value"
    return draw_lines(series, title, x_axis, format_x, description=description, without_lines=True)


def _is_drawable(*values: float) -> bool:
    return all(abs(value) < _LARGEST for value in values)


def thin_out(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return about 400 evenly spaced points, always including the last point."""
    step = max(1, math.ceil(len(points) / _POINTS))
    return [*points[:-1:step], *points[-1:]]


def _estimate_width(text: str) -> float:
    """Estimate the width of digits in the font of the charts, 11 pixels high, in pixels."""
    return 6.6 * len(text)


def _format_mark(value: float) -> str:
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def _choose_marks(least: float, most: float) -> list[float]:
    """Return three to six round numbers that enclose a range; a single number if the range is (almost) empty."""
    # Treat ranges below 1e-300 as empty, because such small powers of ten are inexact or 0 in floating point.
    if most - least <= max(abs(most) * 1e-9, 1e-300):
        return [float(f"{least:.4g}")]
    rough = (most - least) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    start, stop = math.floor(least / step), math.ceil(most / step)
    return [float(f"{number * step:.12g}") for number in range(start, stop + 1)]
