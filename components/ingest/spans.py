"""Resolve {SPAN}, {VERSION} and dates in file patterns: find the existing spans, and select spans by the config.

The specs have the same meaning as in TFX. {SPAN} or {SPAN:width} is a number. {YYYY}, {MM} and {DD} together are a
date, whose span is the number of days since 1970. The newest {VERSION} of a span is used. Unlike in TFX's ExampleGens,
a range may cover several spans.

Source: "Span, Version and Split" in https://www.tensorflow.org/tfx/guide/examplegen.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from components.base.errors import InputError
from components.ingest.config import SpansConfig

Glob: TypeAlias = "Callable[[str], list[str]]"
"""Lists the files that a pattern matches."""
_Versions: TypeAlias = "dict[int, dict[int | None, set[str]]]"
"""Span → version → patterns with the numbers filled in. There are several if numbers are written in several ways."""

_DATE = {"YYYY": 4, "MM": 2, "DD": 2}
_SPEC = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::([^{}/]*))?\}")
_GLOB_PART = re.compile(r"\[!?\]?[^\]/]*\]|.", re.DOTALL)
_MAX_DIGITS = 18  # ML Metadata stores 64 bits
_MAX_LISTED = 5


@dataclass(frozen=True)
class Resolved:
    """The selected spans, and the patterns of their files.

    Attributes:
      spans: Numbers of the spans, oldest first; (0,) if the patterns do not contain specs.
      version: Version of the newest span; None without {VERSION}.
      patterns: One dict per span, name → pattern relative to the base, without specs.
    """

    spans: tuple[int, ...]
    version: int | None
    patterns: tuple[dict[str, str], ...]

    @property
    def span(self) -> int:
        """The newest selected span."""
        return self.spans[-1]


def has_specs(pattern: str) -> bool:
    """Return whether a pattern contains {SPAN}, {VERSION} or a part of a date."""
    return bool(_SPEC.search(pattern))


def check(pattern: str) -> None:
    """Check that the specs of a pattern fit together.

    Raises:
      InputError: If a pattern contains a span and a date, a spec twice, a version without span or date, only a part of
        a date, or a width that is not a number.
    """
    specs = _SPEC.findall(pattern)
    names = [name for name, _ in specs]
    dates = [f"{{{name}}}" for name in _DATE if name in names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _invalid(f"{{{twice}}} once", f"it {names.count(twice)} times", pattern)
    if dates and "SPAN" in names:
        raise _invalid("either {SPAN} or a date", f"{{SPAN}} and {', '.join(dates)}", pattern)
    if 0 < len(dates) < len(_DATE):
        raise _invalid("all of {YYYY}, {MM} and {DD}", f"only {' and '.join(dates)}", pattern)
    if "VERSION" in names and not dates and "SPAN" not in names:
        raise _invalid("{SPAN} or a date with {VERSION}", "neither", pattern)
    for spec in _SPEC.finditer(pattern):
        name, width = spec.groups()
        if name in _DATE and width is not None:
            raise _invalid(f"{{{name}}}, which always has {_DATE[name]} digits", spec[0], pattern)
        if width is not None and not (re.fullmatch("[0-9]+", width) and 0 < int(width) <= _MAX_DIGITS):
            raise _invalid(f"a width of 1 to {_MAX_DIGITS} digits, such as {{{name}:2}}", spec[0], pattern)
    if re.search(r"\{SPAN\}\{VERSION\}|\{VERSION\}\{SPAN\}", pattern):
        raise _invalid("a width for one of two numbers side by side, such as {SPAN:4}", "none", pattern)


def wildcards(pattern: str) -> str:
    """Replace the specs of a pattern by *, to list all files that may match."""
    return re.sub(f"(?:{_SPEC.pattern})+", "*", pattern)


def resolve(base: str, patterns: Mapping[str, str], spans: SpansConfig, glob: Glob) -> Resolved:
    """Select the configured spans, and the newest version of every span.

    Args:
      base: Local or remote folder that the patterns are relative to. It may be a pattern itself.
      patterns: Name → file pattern. All patterns must have the same specs and match every selected span.
      spans: Section `data.spans` of the config.
      glob: Function that lists the files that a pattern matches.

    Raises:
      InputError: If specs do not fit together or differ between patterns, a pattern does not match files, a path lacks
        a number in place of a spec, the configured spans do not exist, or the patterns differ in spans or versions.
    """
    _check_specs(patterns.values(), spans)
    existing = {name: _find(base, pattern, glob) for name, pattern in patterns.items()}
    dated = any("{YYYY}" in pattern for pattern in patterns.values())
    existing_spans = {span for versions in existing.values() for span in versions}
    first, last = _find_bounds(spans, max(existing_spans))
    selected = sorted(span for span in existing_spans if first <= span <= last)
    if not selected:
        expected = (
            f"the spans {spans.start} to {spans.end}" if spans.end is not None else f"span {spans.start} or later"
        )
        raise InputError(
            f"data.spans: expected {expected}, received {_list_newest(existing_spans, dated)}",
            "set data.spans to spans that exist" + (", in days since 1970" if dated else ""),
        )
    version, concrete = None, []
    for span in selected:
        for name, pattern in patterns.items():
            if span not in existing[name]:
                raise InputError(
                    f"data.path: expected span {_format(span, dated)}, which other patterns have, in {pattern} as "
                    f"well, received {_list_newest(existing[name], dated)}",
                    "add its files, or set data.spans to spans that all patterns have",
                )
        version, span_patterns = _find_newest_version(
            _format(span, dated), {name: existing[name][span] for name in patterns}, patterns
        )
        concrete.append(span_patterns)
    return Resolved(tuple(selected), version, tuple(concrete))


def _check_specs(patterns: Iterable[str], spans: SpansConfig) -> None:
    first: str | None = None
    for pattern in patterns:
        check(pattern)
        first = pattern if first is None else first
        if _find_specs(pattern) != _find_specs(first):
            raise InputError(
                f"data.path: expected the same specs in all patterns, received {first} and {pattern}",
                "give each pattern {SPAN} or a date, and {VERSION} to all of them or to none",
            )
        if not has_specs(pattern) and spans != SpansConfig():
            raise InputError(
                f"data.spans: expected {{SPAN}}, or {{YYYY}}, {{MM}} and {{DD}}, in the path, received {pattern}",
                "put {SPAN} or a date into data.path, or remove data.spans",
            )


def _find_specs(pattern: str) -> set[str]:
    return {name for name, _ in _SPEC.findall(pattern)}


def _find(base: str, pattern: str, glob: Glob) -> _Versions:
    """Find the spans and versions of a pattern."""
    paths = glob(_join(base, wildcards(pattern)))
    if not paths:
        raise InputError(
            f"data.path: no file matches {_join(base, pattern)}",
            "set data.path to a file, a folder or a pattern that matches files",
        )
    if not has_specs(pattern):
        return {0: {None: {pattern}}}
    # Wildcards do not match slashes, so the number of slashes shows which part of a path is the base.
    parts = _parts(pattern)
    exact, rough = (re.compile("".join(_expression("/".join(parts), digit))) for digit in ("[0-9]", "(?s:.)"))
    versions: _Versions = {}
    for path in paths:
        below = "/".join(_parts(path)[-len(parts) :])
        match = exact.fullmatch(below)
        if match is None:
            raise _no_number(path, pattern, rough.fullmatch(below))
        tokens = match.groupdict()
        version = int(tokens["VERSION"]) if "VERSION" in tokens else None
        versions.setdefault(_parse_span(tokens, path), {}).setdefault(version, set()).add(_fill(pattern, tokens))
    return versions


def _fill(pattern: str, tokens: Mapping[str, str]) -> str:
    """Fill in the numbers as they are written in a path, with leading zeros."""
    return _SPEC.sub(lambda spec: tokens[spec[1]], pattern)


def _expression(pattern: str, digit: str) -> Iterator[str]:
    """Yield the parts of a regular expression with one group per spec."""
    split = _SPEC.split(pattern)
    first, *texts = (_GLOB_PART.findall(text) for text in split[::3])
    yield from map(_translate, first)
    before = first
    for name, width, text in zip(split[1::3], split[2::3], texts, strict=True):
        if digits := width or _DATE.get(name):
            yield f"(?P<{name}>{digit}{{{digits}}})"
        else:
            # Next to a wildcard, a number includes all adjacent digits, so the wildcard must not match digits.
            yield "(?<![0-9])" if _is_wild(before[-1:]) else ""
            yield f"(?P<{name}>{digit}{{1,{_MAX_DIGITS}}})"
            yield "(?![0-9])" if _is_wild(text[:1]) else ""
        yield from map(_translate, text)
        before = text


def _translate(part: str) -> str:
    """Convert a character or [...] of a glob to a regular expression, without the (?s:...) and anchor of fnmatch."""
    return fnmatch.translate(part).removeprefix("(?s:").rpartition(")")[0]


def _is_wild(part: list[str]) -> bool:
    """Return whether a part of a glob matches several characters; [x] is an escaped character."""
    return bool(part) and (part[0] in ("*", "?") or len(part[0]) > len("[x]"))


def _no_number(path: str, pattern: str, rough: re.Match[str] | None) -> InputError:
    tokens = rough.groupdict() if rough else {}
    wrong = ((name, token) for name, token in tokens.items() if not re.fullmatch("[0-9]+", token))
    name, token = next(wrong, (None, ""))
    if name is None:
        headline = f"data.path: expected numbers with the digits of {pattern}, received {path}"
    else:
        headline = f"data.path: expected a number for {{{name}}}, received {token!r} in {path}"
    return InputError(headline, "move files that do not belong to a span, or set data.path to a narrower pattern")


def _parse_span(tokens: Mapping[str, str], path: str) -> int:
    if "SPAN" in tokens:
        return int(tokens["SPAN"])
    year, month, day = (int(tokens[name]) for name in _DATE)
    try:
        return (datetime.date(year, month, day) - datetime.date(1970, 1, 1)).days
    except ValueError as error:
        received = "-".join(tokens[name] for name in _DATE)
        raise InputError(
            f"data.path: expected a date for {{YYYY}}, {{MM}} and {{DD}}, received {received} in {path}",
            "fix the name, or set data.path to a narrower pattern",
        ) from error


def _find_bounds(spans: SpansConfig, newest: int) -> tuple[float, float]:
    """Return the first and the last configured span."""
    if spans.start is not None and spans.end is not None:
        return spans.start, spans.end
    return max(newest - spans.latest + 1, -math.inf if spans.start is None else spans.start), newest


def _find_newest_version(
    span: str, existing: Mapping[str, Mapping[int | None, set[str]]], patterns: Mapping[str, str]
) -> tuple[int | None, dict[str, str]]:
    """Return the newest version of a span, which must be the same for all patterns, and the patterns filled in."""
    newest = {
        name: max(versions, key=lambda version: -1 if version is None else version)
        for name, versions in existing.items()
    }
    if len(set(newest.values())) > 1:
        raise InputError(
            f"data.path: expected the same newest version of span {span} for all patterns, "
            f"received {_join_texts(newest.values())}",
            "add the files of the newest version to all patterns, or move them elsewhere until the version is complete",
            (f"{patterns[name]} has version {version}" for name, version in newest.items()),
        )
    concrete = {}
    for name, version in newest.items():
        written = sorted(existing[name][version])
        if len(written) > 1:
            raise InputError(
                f"data.path: expected one way of writing the numbers of span {span}, received {' and '.join(written)}",
                "put the files of the span in one place",
            )
        concrete[name] = written[0]
    return next(iter(newest.values())), concrete


def _list_newest(spans: Iterable[int], dated: bool) -> str:
    """List the newest few spans for a message."""
    newest = sorted(spans, reverse=True)
    ellipsis = " ..." if len(newest) > _MAX_LISTED else ""
    return _join_texts(_format(span, dated) for span in newest[:_MAX_LISTED]) + ellipsis


def _format(span: int, dated: bool) -> str:
    return f"{span} ({datetime.date(1970, 1, 1) + datetime.timedelta(days=span)})" if dated else str(span)


def _join_texts(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _join(base: str, pattern: str) -> str:
    return os.path.join(base, pattern)  # noqa: PTH118 - pathlib changes URLs


def _invalid(expected: str, received: str, pattern: str) -> InputError:
    return InputError(
        f"data.path: expected {expected}, received {received} in {pattern}",
        "write it such as data/{SPAN}/*.csv, data/{SPAN:4}/v{VERSION}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv",
    )
