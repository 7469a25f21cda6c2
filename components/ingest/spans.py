"""Resolves {SPAN}, {VERSION} and dates in patterns of files: which spans are there, and where the wanted ones lie.

The specs are TFX's, and so is what they stand for: {SPAN} or {SPAN:width} is a number, {YYYY}, {MM} and {DD} together
are a date whose span is its days since 1970, and of a span the newest {VERSION} counts. Unlike TFX's ExampleGens, a
range may cover several spans.

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

from components.errors import InputError
from components.ingest.config import SpansConfig

Glob: TypeAlias = "Callable[[str], list[str]]"
"""Lists the files that a pattern matches."""
_There: TypeAlias = "dict[int, dict[int | None, set[str]]]"
"""By span and version, the pattern with the numbers filled in; several if numbers are written in several ways."""

_DATE = {"YYYY": 4, "MM": 2, "DD": 2}
_SPEC = re.compile(r"\{(SPAN|VERSION|YYYY|MM|DD)(?::([^{}/]*))?\}")
_GLOB_PIECE = re.compile(r"\[!?\]?[^\]/]*\]|.", re.DOTALL)
_MOST_DIGITS = 18  # what ML Metadata can hold: 64 bits
_TOLD = 5


@dataclass(frozen=True)
class Resolved:
    """The spans that are taken, and the patterns of their files.

    Attributes:
      spans: their numbers, oldest first; (0,) if the patterns have no specs.
      version: the newest one's version; None without {VERSION}.
      patterns: for each span the patterns below the base, by name, without specs.
    """

    spans: tuple[int, ...]
    version: int | None
    patterns: tuple[dict[str, str], ...]

    @property
    def span(self) -> int:
        """The newest span that is taken."""
        return self.spans[-1]


def has_specs(pattern: str) -> bool:
    """Whether {SPAN}, {VERSION} or a part of a date stands in the pattern."""
    return bool(_SPEC.search(pattern))


def check(pattern: str) -> None:
    """Refuses specs that mean nothing together.

    Raises:
      InputError: a span beside a date, a spec that stands there twice, a version of nothing, a part of a date, or a
        width that is no number.
    """
    specs = _SPEC.findall(pattern)
    names = [name for name, _ in specs]
    dates = [f"{{{name}}}" for name in _DATE if name in names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _refused(f"{{{twice}}} once", f"it {names.count(twice)} times", pattern)
    if dates and "SPAN" in names:
        raise _refused("either {SPAN} or a date", f"{{SPAN}} and {', '.join(dates)}", pattern)
    if 0 < len(dates) < len(_DATE):
        raise _refused("all of {YYYY}, {MM} and {DD}", f"only {' and '.join(dates)}", pattern)
    if "VERSION" in names and not dates and "SPAN" not in names:
        raise _refused("{SPAN} or a date beside {VERSION}", "neither", pattern)
    for spec in _SPEC.finditer(pattern):
        name, width = spec.groups()
        if name in _DATE and width is not None:
            raise _refused(f"{{{name}}}, which always has {_DATE[name]} digits", spec[0], pattern)
        if width is not None and not (re.fullmatch("[0-9]+", width) and 0 < int(width) <= _MOST_DIGITS):
            raise _refused(f"a width of 1 to {_MOST_DIGITS} digits, such as {{{name}:2}}", spec[0], pattern)
    if re.search(r"\{SPAN\}\{VERSION\}|\{VERSION\}\{SPAN\}", pattern):
        raise _refused("a width for one of two numbers side by side, such as {SPAN:4}", "none", pattern)


def wildcards(pattern: str) -> str:
    """The pattern with * in place of specs, to list all that may match."""
    return re.sub(f"(?:{_SPEC.pattern})+", "*", pattern)


def resolve(base: str, patterns: Mapping[str, str], spans: SpansConfig, glob: Glob) -> Resolved:
    """Finds the spans that are wanted, and for each its newest version.

    Args:
      base: the folder that the patterns are below, local or remote; like them it is a pattern itself.
      patterns: by name, patterns of files. All have the same specs, and each must have every span that is taken.
      spans: which spans are wanted.
      glob: lists the files that a pattern matches.

    Raises:
      InputError: specs do not fit together or differ between patterns, a pattern matches nothing, a path has no number
        where a spec stands, no wanted span is there, or the patterns do not have the same spans and versions.
    """
    _check_specs(patterns.values(), spans)
    there = {name: _look(base, pattern, glob) for name, pattern in patterns.items()}
    dated = any("{YYYY}" in pattern for pattern in patterns.values())
    found = {span for of_pattern in there.values() for span in of_pattern}
    first, last = _bounds(spans, max(found))
    taken = sorted(span for span in found if first <= span <= last)
    if not taken:
        wanted = f"the spans {spans.start} to {spans.end}" if spans.end is not None else f"span {spans.start} or later"
        raise InputError(
            f"data.spans: expected {wanted}, received {_newest(found, dated)}",
            "set data.spans to spans that are there" + (", in days since 1970" if dated else ""),
        )
    version, concrete = None, []
    for span in taken:
        for name, pattern in patterns.items():
            if span not in there[name]:
                raise InputError(
                    f"data.path: expected span {_tell(span, dated)}, which other patterns have, in {pattern} as well, "
                    f"received {_newest(there[name], dated)}",
                    "add its files, or set data.spans to spans that all patterns have",
                )
        version, of_span = _newest_version(_tell(span, dated), {name: there[name][span] for name in patterns}, patterns)
        concrete.append(of_span)
    return Resolved(tuple(taken), version, tuple(concrete))


def _check_specs(patterns: Iterable[str], spans: SpansConfig) -> None:
    first: str | None = None
    for pattern in patterns:
        check(pattern)
        first = pattern if first is None else first
        if _kind(pattern) != _kind(first):
            raise InputError(
                f"data.path: expected the same specs in all patterns, received {first} and {pattern}",
                "give each pattern {SPAN} or a date, and {VERSION} to all of them or to none",
            )
        if not has_specs(pattern) and spans != SpansConfig():
            raise InputError(
                f"data.spans: expected {{SPAN}}, or {{YYYY}}, {{MM}} and {{DD}}, in the path, received {pattern}",
                "say in data.path where the span stands, or leave data.spans out",
            )


def _kind(pattern: str) -> set[str]:
    return {name for name, _ in _SPEC.findall(pattern)}


def _look(base: str, pattern: str, glob: Glob) -> _There:
    """All that a pattern matches."""
    paths = glob(_join(base, wildcards(pattern)))
    if not paths:
        raise InputError(
            f"data.path: no file matches {_join(base, pattern)}",
            "set data.path to a file, a folder or a pattern that matches files",
        )
    if not has_specs(pattern):
        return {0: {None: {pattern}}}
    # No wildcard matches a slash, so counting them shows which part of a path is the base, however it is written.
    parts = _parts(pattern)
    exact, rough = (re.compile("".join(_expression("/".join(parts), digit))) for digit in ("[0-9]", "(?s:.)"))
    there: _There = {}
    for path in paths:
        below = "/".join(_parts(path)[-len(parts) :])
        match = exact.fullmatch(below)
        if match is None:
            raise _no_number(path, pattern, rough.fullmatch(below))
        tokens = match.groupdict()
        version = int(tokens["VERSION"]) if "VERSION" in tokens else None
        there.setdefault(_span(tokens, path), {}).setdefault(version, set()).add(_filled(pattern, tokens))
    return there


def _filled(pattern: str, tokens: Mapping[str, str]) -> str:
    """The pattern with the numbers as they stand in a path, zeros in front included."""
    return _SPEC.sub(lambda spec: tokens[spec[1]], pattern)


def _expression(pattern: str, digit: str) -> Iterator[str]:
    """The pieces of a regular expression that has a group for each spec."""
    split = _SPEC.split(pattern)
    first, *texts = (_GLOB_PIECE.findall(text) for text in split[::3])
    yield from map(_translated, first)
    before = first
    for name, width, text in zip(split[1::3], split[2::3], texts, strict=True):
        if digits := width or _DATE.get(name):
            yield f"(?P<{name}>{digit}{{{digits}}})"
        else:
            # Beside a wildcard a number is all the digits that are there, not what the wildcard leaves of them.
            yield "(?<![0-9])" if _is_wild(before[-1:]) else ""
            yield f"(?P<{name}>{digit}{{1,{_MOST_DIGITS}}})"
            yield "(?![0-9])" if _is_wild(text[:1]) else ""
        yield from map(_translated, text)
        before = text


def _translated(piece: str) -> str:
    """A character or [...] of a glob as a regular expression; fnmatch gives it as (?s:...), tied to the end."""
    return fnmatch.translate(piece).removeprefix("(?s:").rpartition(")")[0]


def _is_wild(piece: list[str]) -> bool:
    """Whether a piece of a glob matches different characters; [x] is how one is escaped."""
    return bool(piece) and (piece[0] in ("*", "?") or len(piece[0]) > len("[x]"))


def _no_number(path: str, pattern: str, rough: re.Match[str] | None) -> InputError:
    tokens = rough.groupdict() if rough else {}
    wrong = ((name, token) for name, token in tokens.items() if not re.fullmatch("[0-9]+", token))
    name, token = next(wrong, (None, ""))
    if name is None:
        headline = f"data.path: expected numbers of as many digits as {pattern} says, received {path}"
    else:
        headline = f"data.path: expected a number for {{{name}}}, received {token!r} in {path}"
    return InputError(headline, "move what is no span elsewhere, or set data.path to a narrower pattern")


def _span(tokens: Mapping[str, str], path: str) -> int:
    if "SPAN" in tokens:
        return int(tokens["SPAN"])
    year, month, day = (int(tokens[name]) for name in _DATE)
    try:
        return (datetime.date(year, month, day) - datetime.date(1970, 1, 1)).days
    except ValueError as error:
        received = "-".join(tokens[name] for name in _DATE)
        raise InputError(
            f"data.path: expected a date for {{YYYY}}, {{MM}} and {{DD}}, received {received} in {path}",
            "mend the name, or set data.path to a narrower pattern",
        ) from error


def _bounds(spans: SpansConfig, newest: int) -> tuple[float, float]:
    """The first and the last number that are wanted."""
    if spans.start is not None and spans.end is not None:
        return spans.start, spans.end
    return max(newest - spans.latest + 1, -math.inf if spans.start is None else spans.start), newest


def _newest_version(
    span: str, there: Mapping[str, Mapping[int | None, set[str]]], patterns: Mapping[str, str]
) -> tuple[int | None, dict[str, str]]:
    """The newest version of a span, which is the same for all patterns, and the patterns filled in."""
    newest = {name: max(versions, key=lambda one: -1 if one is None else one) for name, versions in there.items()}
    if len(set(newest.values())) > 1:
        raise InputError(
            f"data.path: expected the same newest version of span {span} for all patterns, "
            f"received {_listed(newest.values())}",
            "add the files of the newest version to all patterns, or move it elsewhere until it is complete",
            (f"{patterns[name]} has version {version}" for name, version in newest.items()),
        )
    concrete = {}
    for name, version in newest.items():
        written = sorted(there[name][version])
        if len(written) > 1:
            raise InputError(
                f"data.path: expected one way of writing the numbers of span {span}, received {' and '.join(written)}",
                "put the files of the span in one place",
            )
        concrete[name] = written[0]
    return next(iter(newest.values())), concrete


def _newest(found: Iterable[int], dated: bool) -> str:
    """The newest few spans, for the screen."""
    newest = sorted(found, reverse=True)
    rest = " ..." if len(newest) > _TOLD else ""
    return _listed(_tell(span, dated) for span in newest[:_TOLD]) + rest


def _tell(span: int, dated: bool) -> str:
    return f"{span} ({datetime.date(1970, 1, 1) + datetime.timedelta(days=span)})" if dated else str(span)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _join(base: str, pattern: str) -> str:
    return os.path.join(base, pattern)  # noqa: PTH118 - pathlib would take a URL apart


def _refused(expected: str, received: str, pattern: str) -> InputError:
    return InputError(
        f"data.path: expected {expected}, received {received} in {pattern}",
        "write it such as data/{SPAN}/*.csv, data/{SPAN:4}/v{VERSION}/*.csv or data/{YYYY}-{MM}-{DD}/*.csv",
    )
