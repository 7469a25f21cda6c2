"""Tests for the SVG charts: formatted numbers, histograms, lines and ranges, also with arbitrary values."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.inspection.report import svg
from tests.support.runs.report_runs import HARM

NUMBERS = st.floats(-1e299, 1e299)
ANY = st.floats()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (12345.0, "12,345"),
        (0.95183, "0.9518"),
        (23.456, "23.46"),
        (1234.56, "1,235"),
        (1.5e-5, "1.5e-05"),
        (12345678.9, "1.235e+07"),
        (-0.5, "-0.5000"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_significant_digits(value: float, message: str):
    assert svg.format_figure(value) == message


def read_heights(chart: str) -> list[float]:
    return [float(height) for height in re.findall(r"v-([0-9.]+)h", chart)]


def test_histogram_has_bars_of_equal_width():
    chart = str(svg.draw_histogram([(0.0, 12.0, 0.5), (12.0, 24.0, 0.5)], (0.0, 24.0), "x"))
    assert read_heights(chart) == pytest.approx([38.0] * svg.BARS, abs=0.1)
    chart = str(svg.draw_histogram([(0.0, 6.0, 0.5), (6.0, 24.0, 0.5)], (0.0, 24.0), "x"))
    assert read_heights(chart)[:6] == pytest.approx([38.0] * 6, abs=0.1)
    assert read_heights(chart)[6:] == pytest.approx([38.0 / 3] * 18, abs=0.1)


def test_single_value_is_a_single_bar():
    assert len(read_heights(str(svg.draw_histogram([(3.0, 3.0, 1.0)], (3.0, 3.0), "x")))) == 1


def test_range_of_a_histogram_cuts_long_tails():
    bins = [(0.0, 1.0, 0.3), (1.0, 2.0, 0.3), (2.0, 3.0, 0.3), (3.0, 1e6, 0.1)]
    assert svg.choose_histogram_range([bins]) == (0.0, 6.0)
    assert svg.choose_histogram_range([[(0.0, 1.0, 0.5), (1.0, math.inf, 0.5)]])[1] < 10
    assert svg.choose_histogram_range([[]]) == (0.0, 0.0)


def test_single_point_is_labeled_with_its_coordinates():
    chart = svg.draw_lines({"train": [(11.0, 0.6464271)]}, "loss by step")
    assert re.findall(r"<text[^>]*>([^<]*)", chart) == ["0.6464", "step 11"]


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_points_are_drawn_within_the_chart(points: list[tuple[float, float]]):
    root = ET.fromstring(str(svg.draw_lines({"train": sorted(points)}, "loss")))  # noqa: S314 - our own
    line = root.find("polyline")
    assert line is not None
    coordinates = [tuple(map(float, pair.split(","))) for pair in str(line.get("points")).split()]
    assert len(coordinates) == len(points)
    assert all(0 <= x <= 340 and 0 <= y <= 170 for x, y in coordinates)


@settings(deadline=None)
@given(st.lists(st.tuples(ANY, ANY)))
def test_points_that_are_not_finite_are_not_drawn(points: list[tuple[float, float]]):
    chart = str(svg.draw_lines({"train": points}, "loss"))
    ET.fromstring(chart)  # noqa: S314 - our own
    assert "nan" not in chart.replace("no finite value", "")


@settings(deadline=None)
@given(st.lists(st.tuples(ANY, ANY, st.floats(0, 1)), max_size=12))
def test_histogram_is_valid_svg_for_any_bins(bins: list[tuple[float, float, float]]):
    ordered = [(min(low, high), max(low, high), share) for low, high, share in bins]
    ET.fromstring(str(svg.draw_histogram(ordered, svg.choose_histogram_range([ordered]), "x")))  # noqa: S314 - our own


@settings(deadline=None)
@example([(5e-324, None)])
@given(st.lists(st.tuples(ANY, st.none() | st.tuples(ANY, ANY)), max_size=5))
def test_chart_of_ranges_is_valid_svg_for_any_values(rows: list[tuple[float, tuple[float, float] | None]]):
    chart = str(svg.draw_ranges([(HARM, *row) for row in rows], HARM))
    ET.fromstring(chart)  # noqa: S314 - our own
    assert not re.search("=.[^>]*nan", chart)


def test_ranges_are_drawn_as_bars_from_zero_with_intervals():
    chart = str(svg.draw_ranges([("a", 2.0, (1.0, 3.0)), ("b", -1.0, None)], "x"))
    bars = [
        tuple(map(float, match))
        for match in re.findall(r'<rect class="range" x="([^"]+)" y="[^"]+" width="([^"]+)"', chart)
    ]
    zero = bars[0][0]
    # The second bar is half as long as the first bar and lies on the other side of 0.
    assert bars[1][0] + bars[1][1] == pytest.approx(zero, abs=0.2)
    assert bars[0][1] == pytest.approx(2 * bars[1][1], abs=0.2)
    [(low, high)] = re.findall(r'<path class="whisker" d="M([^ ]+) [^H]+H([^M]+)M', chart)
    assert (float(low) - zero, float(high) - zero) == pytest.approx((bars[0][1] / 2, bars[0][1] * 1.5), abs=0.2)


def test_chart_has_a_text_alternative():
    chart = str(svg.draw_lines({f"train{HARM}": [(1.0, 0.5), (2.0, 0.25)]}, f"loss{HARM}"))
    root = ET.fromstring(chart)  # noqa: S314 - our own
    title, description = root.find("title"), root.find("desc")
    assert root.get("role") == "img"
    assert title is not None
    assert str(title.text).startswith("loss</title>")
    assert description is not None
    assert "from 0.5000 to 0.2500" in str(description.text)


def test_line_is_thinned_out_and_keeps_the_last_point():
    points = svg.thin_out([(float(x), 0.0) for x in range(100_000)])
    assert len(points) <= 401
    assert (points[0][0], points[-1][0]) == (0.0, 99_999.0)


def test_points_have_no_line_and_marks_are_vertical():
    chart = svg.draw_lines({"a": [(1.0, 2.0), (3.0, 4.0)]}, "loss", x_marks=(2.0, 9.0))
    assert chart.count('class="mark"') == 1, "9 is not in the range"
    [x] = re.findall(r'class="mark" d="M([\d.]+) ', chart)
    ends = [float(value) for value in re.findall(r'cx="([\d.]+)"', chart)]
    assert float(x) == pytest.approx(sum(ends) / 2, abs=0.11)
    dots = svg.draw_points({"a": [(-2.0, 0.5), (0.0, 0.25)]}, "loss", "rate", is_log=True)
    assert "polyline" not in dots
    assert dots.count("<circle") == 2
    assert "lowest at rate 1: 0.2500" in dots
    assert ">0.01</text>" in dots
    assert "no finite value" in svg.draw_points({}, "loss", "rate", is_log=False)
