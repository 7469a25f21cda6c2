"""Specs in paths such as {SPAN} are resolved to existing spans and versions; invalid paths are rejected."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.base.errors import InputError
from components.ingest import spans
from components.ingest.config import SpansConfig

NEWEST = SpansConfig()


def write(base: Path, *names: str) -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("a\n1\n")


def resolve(base: object, *patterns: str, requested: SpansConfig = NEWEST) -> spans.Resolved:
    patterns_by_split = {f"all-{number}": pattern for number, pattern in enumerate(patterns)}
    return spans.resolve(str(base), patterns_by_split, requested, glob.glob)


def resolve_pattern(base: object, pattern: str, requested: SpansConfig = NEWEST) -> tuple[int, int | None, list[str]]:
    result = resolve(base, pattern, requested=requested)
    return result.span, result.version, [patterns["all-0"] for patterns in result.patterns]


def resolve_error(base: object, *patterns: str, requested: SpansConfig = NEWEST) -> InputError:
    with pytest.raises(InputError) as raised:
        resolve(base, *patterns, requested=requested)
    assert raised.value.headline.startswith(("data.path: ", "data.spans: "))
    assert raised.value.remedy
    return raised.value


@pytest.mark.parametrize(
    ("pattern", "has", "listed"),
    [
        ("*.csv", False, "*.csv"),
        ("{span}/{DAY}/a{S}.csv", False, "{span}/{DAY}/a{S}.csv"),
        ("{SPAN}/*.csv", True, "*/*.csv"),
        ("{SPAN:3}{VERSION}-x", True, "*-x"),
        ("{YYYY}{MM}{DD}.csv", True, "*.csv"),
        ("{YYYY}/{MM}/{DD}/v{VERSION:2}", True, "*/*/*/v*"),
    ],
)
def test_specs_are_replaced_by_wildcards_to_list_files(pattern: str, has: bool, listed: str) -> None:
    assert spans.has_specs(pattern) == has
    assert spans.wildcards(pattern) == listed
    spans.check(pattern)


@pytest.mark.parametrize(
    ("pattern", "headline"),
    [
        ("{SPAN}/{YYYY}{MM}{DD}", "expected either {SPAN} or a date, received {SPAN} and {YYYY}, {MM}, {DD}"),
        ("{SPAN}/{SPAN:2}", "expected {SPAN} once, received it 2 times"),
        ("{SPAN}/{VERSION}{VERSION}", "expected {VERSION} once, received it 2 times"),
        ("{YYYY}/{YYYY}{MM}{DD}", "expected {YYYY} once, received it 2 times"),
        ("v{VERSION}/*", "expected {SPAN} or a date with {VERSION}, received neither"),
        ("{YYYY}-{MM}/*", "expected all of {YYYY}, {MM} and {DD}, received only {YYYY} and {MM}"),
        ("{DD}/v{VERSION}", "expected all of {YYYY}, {MM} and {DD}, received only {DD}"),
        ("{SPAN:}/*", "expected a width of 1 to 18 digits, such as {SPAN:2}, received {SPAN:}"),
        ("{SPAN}/{VERSION:x}", "expected a width of 1 to 18 digits, such as {VERSION:2}, received {VERSION:x}"),
        ("{SPAN:0}", "expected a width of 1 to 18 digits, such as {SPAN:2}, received {SPAN:0}"),
        ("{SPAN:19}", "expected a width of 1 to 18 digits, such as {SPAN:2}, received {SPAN:19}"),
        ("{YYYY:4}{MM}{DD}", "expected {YYYY}, which always has 4 digits, received {YYYY:4}"),
        ("{SPAN}{VERSION}", "expected a width for one of two numbers side by side, such as {SPAN:4}, received none"),
    ],
)
def test_invalid_specs_are_rejected(tmp_path: Path, pattern: str, headline: str) -> None:
    with pytest.raises(InputError) as raised:
        spans.check(pattern)
    assert raised.value.headline == f"data.path: {headline} in {pattern}"
    assert "data/{SPAN}/*.csv" in raised.value.remedy
    assert resolve_error(tmp_path, pattern).headline == raised.value.headline


def test_path_without_specs_is_a_single_span(tmp_path: Path) -> None:
    write(tmp_path, "1.csv", "2.csv")
    assert resolve(tmp_path, "*.csv", "1.csv") == spans.Resolved((0,), None, ({"all-0": "*.csv", "all-1": "1.csv"},))


@pytest.mark.parametrize(
    ("names", "pattern", "expected"),
    [
        (["1/a.csv", "2/a.csv", "10/a.csv"], "{SPAN}/*.csv", (10, None, ["10/*.csv"])),
        (["s01/a", "s02/a"], "s{SPAN}/*", (2, None, ["s02/*"])),
        (["s001/a", "s002/a"], "s{SPAN:3}/*", (2, None, ["s002/*"])),
        (["0/a"], "{SPAN}/a", (0, None, ["0/a"])),
        (["1/v1/a", "1/v2/a", "2/v01/a", "2/v10/a", "2/v9/a"], "{SPAN}/v{VERSION}/a", (2, 10, ["2/v10/a"])),
        (["v3/1/a", "v1/2/a"], "v{VERSION}/{SPAN}/a", (2, 1, ["v1/2/a"])),
        (["1201.csv", "1302.csv"], "{SPAN:2}{VERSION:2}.csv", (13, 2, ["1302.csv"])),
        (["12301.csv", "9902.csv"], "{SPAN}{VERSION:2}.csv", (123, 1, ["12301.csv"])),
        (["2021-01-31.csv", "2020-12-31.csv"], "{YYYY}-{MM}-{DD}.csv", (18658, None, ["2021-01-31.csv"])),
        (["19700102/a"], "{YYYY}{MM}{DD}/a", (1, None, ["19700102/a"])),
        (["31.12.1969/a"], "{DD}.{MM}.{YYYY}/a", (-1, None, ["31.12.1969/a"])),
        (["2021/01/31/v1/a", "2021/01/30/v2/a"], "{YYYY}/{MM}/{DD}/v{VERSION}/a", (18658, 1, ["2021/01/31/v1/a"])),
        # The number is next to a wildcard.
        (["t-20210131-120000.csv"], "*{YYYY}{MM}{DD}-*.csv", (18658, None, ["*20210131-*.csv"])),
        (["3-part-0.csv", "3-part-1.csv"], "{SPAN}-*.csv", (3, None, ["3-*.csv"])),
        (["day12.csv"], "*{SPAN}.csv", (12, None, ["*12.csv"])),
        (["3-b12"], "{SPAN}-*{VERSION}", (3, 12, ["3-*12"])),
        (["day12b.csv"], "day{SPAN}[a-c].csv", (12, None, ["day12[a-c].csv"])),
        (["2021-7.csv"], "202[!2]-{SPAN}.???", (7, None, ["202[!2]-7.???"])),
        # A literal digit is next to the number.
        (["x123"], "x[1]{SPAN}", (23, None, ["x[1]23"])),
        (["day05.csv"], "day{SPAN}5.csv", (0, None, ["day05.csv"])),
        # The names contain special characters of patterns or regular expressions.
        (["run[1]/a+b (c)/4.x"], "run[[]1]/a+b (c)/{SPAN}.x", (4, None, ["run[[]1]/a+b (c)/4.x"])),
        (["run[9]/a"], "run[[]{SPAN}]/a", (9, None, ["run[[]9]/a"])),
        (["a.b/1", "acb/2"], "a.b/{SPAN}", (1, None, ["a.b/1"])),
        (["what?/3", "whats/4"], "what[?]/{SPAN}", (3, None, ["what[?]/3"])),
        (["q/7", "^/8"], "[^]/{SPAN}", (8, None, ["[^]/8"])),
    ],
)
def test_newest_span_and_version_are_resolved(
    tmp_path: Path, names: list[str], pattern: str, expected: tuple[int, int | None, list[str]]
) -> None:
    write(tmp_path, *names)
    result = resolve_pattern(tmp_path, pattern)
    assert result == expected
    assert any(tmp_path.glob(result[2][0]))


def test_base_folder_can_be_written_in_different_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "in[1].d/{SPAN}/1/a.csv", "in[1].d/{SPAN}/2/a.csv", "in1.d/{SPAN}/3/a.csv", "x/y/4/a.csv")
    escaped = glob.escape(f"{tmp_path}/in[1].d/{{SPAN}}")
    assert resolve_pattern(escaped, "{SPAN}/a.csv")[0] == 2
    assert resolve_pattern(f"{tmp_path}//in[[]1].*//", "?SPAN?//{SPAN}//a.csv")[0] == 2
    assert resolve_pattern(tmp_path, "x//y//{SPAN}//a.csv")[0] == 4
    monkeypatch.chdir(tmp_path)
    assert resolve_pattern("in1.d/..", "in1.d/?SPAN?/{SPAN}/a.csv")[0] == 3
    assert resolve_pattern("", "in1.d/?SPAN?/{SPAN}/a.csv")[0] == 3


def test_several_spans_are_read(tmp_path: Path) -> None:
    write(tmp_path, *(f"{span:02}/v{version}/a" for span, version in [(1, 1), (3, 1), (3, 2), (4, 1), (7, 5)]))
    pattern = "{SPAN}/v{VERSION}/a"
    three, four, seven = "03/v2/a", "04/v1/a", "07/v5/a"
    assert resolve_pattern(tmp_path, pattern, SpansConfig(latest=4)) == (7, 5, [four, seven])
    assert resolve_pattern(tmp_path, pattern, SpansConfig(latest=5)) == (7, 5, [three, four, seven])
    assert resolve_pattern(tmp_path, pattern, SpansConfig(latest=100, start=2)) == (7, 5, [three, four, seven])
    assert resolve_pattern(tmp_path, pattern, SpansConfig(start=1)) == (7, 5, [seven])
    assert resolve_pattern(tmp_path, pattern, SpansConfig(start=2, end=5)) == (4, 1, [three, four])
    assert resolve_pattern(tmp_path, pattern, SpansConfig(start=3, end=3)) == (3, 2, [three])
    assert resolve(tmp_path, pattern, requested=SpansConfig(start=2, end=5)).spans == (3, 4)


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.one_of(
        st.builds(SpansConfig, latest=st.integers(1, 50), start=st.none() | st.integers(0, 40)),
        st.builds(
            lambda start, more: SpansConfig(start=start, end=start + more), st.integers(0, 40), st.integers(0, 9)
        ),
    ),
)
def test_span_range_follows_the_config(existing: set[int], requested: SpansConfig) -> None:
    low = max(existing) - requested.latest + 1 if requested.end is None else 0
    high = max(existing) if requested.end is None else requested.end
    expected = [span for span in sorted(existing) if max(low, requested.start or 0) <= span <= high]
    paths = [f"base/{span}/a" for span in existing]
    if expected:
        assert spans.resolve("base", {"x": "{SPAN}/a"}, requested, lambda _: paths).spans == tuple(expected)
    else:
        with pytest.raises(InputError, match=r"^error\[2\]: data\.spans: expected"):
            spans.resolve("base", {"x": "{SPAN}/a"}, requested, lambda _: paths)


def test_several_patterns_share_spans_and_versions(tmp_path: Path) -> None:
    write(tmp_path, "train/1/v1/a", "train/02/v3/a", "train/02/v4/a", "eval/1/v1/a", "eval/2/v4/a")
    result = resolve(tmp_path, "train/{SPAN}/v{VERSION}/*", "eval/{SPAN}/v{VERSION}/*", requested=SpansConfig(latest=2))
    assert (result.span, result.version) == (2, 4)
    assert result.patterns == (
        {"all-0": "train/1/v1/*", "all-1": "eval/1/v1/*"},
        {"all-0": "train/02/v4/*", "all-1": "eval/2/v4/*"},
    )


def test_pattern_that_matches_nothing_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, "1/a.csv", "train/1/a.csv")
    for pattern in ("*.txt", "{SPAN}/*.txt", "{YYYY}{MM}{DD}/x/*.csv"):
        assert resolve_error(tmp_path, pattern).headline == f"data.path: no file matches {tmp_path}/{pattern}"
    error = resolve_error(tmp_path, "train/{SPAN}/*.csv", "eval/{SPAN}/*.csv")
    assert error.headline == f"data.path: no file matches {tmp_path}/eval/{{SPAN}}/*.csv"


def test_missing_spans_are_reported_with_existing_spans(tmp_path: Path) -> None:
    write(tmp_path, *(f"{span}/a" for span in range(1, 8)), "days/2021-01-31/a", "days/2021-02-01/a")
    many = resolve_error(tmp_path, "{SPAN}/a", requested=SpansConfig(start=8, end=9))
    assert many.headline == "data.spans: expected the spans 8 to 9, received 7, 6, 5, 4, 3 ..."
    assert many.remedy == "set data.spans to spans that exist"
    assert resolve_error(tmp_path, "{SPAN}/a", requested=SpansConfig(start=8)).headline == (
        "data.spans: expected span 8 or later, received 7, 6, 5, 4, 3 ..."
    )
    dates = resolve_error(tmp_path, "days/{YYYY}-{MM}-{DD}/a", requested=SpansConfig(start=1, end=9))
    assert dates.headline == ("data.spans: expected the spans 1 to 9, received 18659 (2021-02-01), 18658 (2021-01-31)")
    assert dates.remedy == "set data.spans to spans that exist, in days since 1970"


def test_range_requires_a_path_with_spans(tmp_path: Path) -> None:
    write(tmp_path, "a.csv")
    for requested in (SpansConfig(latest=2), SpansConfig(start=1), SpansConfig(start=1, end=2)):
        assert resolve_error(tmp_path, "*.csv", requested=requested).headline == (
            "data.spans: expected {SPAN}, or {YYYY}, {MM} and {DD}, in the path, received *.csv"
        )


@pytest.mark.parametrize(
    ("name", "pattern", "headline"),
    [
        ("abc/a", "{SPAN}/a", "expected a number for {SPAN}, received 'abc' in {}"),
        ("-1/a", "{SPAN}/a", "expected a number for {SPAN}, received '-1' in {}"),
        ("1_0/a", "{SPAN}/a", "expected a number for {SPAN}, received '1_0' in {}"),
        ("٣/a", "{SPAN}/a", "expected a number for {SPAN}, received '٣' in {}"),
        ("1/vb/a", "{SPAN}/v{VERSION}/a", "expected a number for {VERSION}, received 'b' in {}"),
        ("100/a", "{SPAN:2}/a", "expected numbers with the digits of {SPAN:2}/a, received {}"),
        ("1" * 19, "{SPAN}", "expected numbers with the digits of {SPAN}, received {}"),
        ("v.csv", "v{SPAN}.csv", "expected numbers with the digits of v{SPAN}.csv, received {}"),
        ("x123", "x{SPAN}[0-9]", "expected numbers with the digits of x{SPAN}[0-9], received {}"),
        ("12", "{SPAN}*{VERSION}", "expected numbers with the digits of {SPAN}*{VERSION}, received {}"),
        ("20210231/a", "{YYYY}{MM}{DD}/a", "expected a date for {YYYY}, {MM} and {DD}, received 2021-02-31 in {}"),
        ("00000101/a", "{YYYY}{MM}{DD}/a", "expected a date for {YYYY}, {MM} and {DD}, received 0000-01-01 in {}"),
        (
            "2021-1-31/a",
            "{YYYY}-{MM}-{DD}/a",
            "expected numbers with the digits of {YYYY}-{MM}-{DD}/a, received {}",
        ),
        ("2021ja31/a", "{YYYY}{MM}{DD}/a", "expected a number for {MM}, received 'ja' in {}"),
    ],
)
def test_paths_without_the_numbers_are_rejected(tmp_path: Path, name: str, pattern: str, headline: str) -> None:
    write(tmp_path, name)
    error = resolve_error(tmp_path, pattern)
    assert error.headline == "data.path: " + headline.replace("{}", f"{tmp_path}/{name}")


def test_incompatible_patterns_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, "t/1/v1/a", "t/2/v1/a", "e/1/v1/a", "f/1/v1/a", "f/2/v2/a")
    latest_two = SpansConfig(latest=2)
    assert resolve_error(tmp_path, "t/{SPAN}/v1/a", "e/{SPAN}/v{VERSION}/a").headline == (
        "data.path: expected the same specs in all patterns, received t/{SPAN}/v1/a and e/{SPAN}/v{VERSION}/a"
    )
    assert resolve_error(tmp_path, "t/1/v1/a", "e/{SPAN}/v1/a").headline == (
        "data.path: expected the same specs in all patterns, received t/1/v1/a and e/{SPAN}/v1/a"
    )
    for patterns in (("t/{SPAN}/v1/a", "e/{SPAN}/v1/a"), ("e/{SPAN}/v1/a", "t/{SPAN}/v1/a")):
        for requested in (NEWEST, latest_two, SpansConfig(start=1, end=2)):
            assert resolve_error(tmp_path, *patterns, requested=requested).headline == (
                "data.path: expected span 2, which other patterns have, in e/{SPAN}/v1/a as well, received 1"
            )
    assert resolve_pattern(tmp_path, "e/{SPAN}/v1/a", SpansConfig(start=1, end=1))[0] == 1
    patterns = ("t/{SPAN}/v{VERSION}/a", "f/{SPAN}/v{VERSION}/a")
    assert resolve(tmp_path, *patterns, requested=SpansConfig(start=1, end=1)).version == 1
    version = resolve_error(tmp_path, *patterns, requested=latest_two)
    assert version.headline == ("data.path: expected the same newest version of span 2 for all patterns, received 1, 2")
    assert version.details == (f"{patterns[0]} has version 1", f"{patterns[1]} has version 2")


def test_span_in_two_folders_is_rejected(tmp_path: Path) -> None:
    write(tmp_path, "2/a", "3/a", "03/a", "4/a", "v/1/02/a", "v/1/2/a", "v/01/3/a")
    assert resolve_error(tmp_path, "{SPAN}/a", requested=SpansConfig(latest=2)).headline == (
        "data.path: expected one way of writing the numbers of span 3, received 03/a and 3/a"
    )
    # Ambiguous spans that are not selected, and ambiguous older versions, are ignored.
    assert resolve_pattern(tmp_path, "{SPAN}/a")[0] == 4
    assert resolve_pattern(tmp_path, "v/{SPAN}/{VERSION}/a") == (1, 3, ["v/01/3/a"])


def test_heavy_packages_are_not_imported() -> None:
    script = (
        "import sys; from components.ingest import spans\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env={**os.environ, "PYTHONPATH": "."})
