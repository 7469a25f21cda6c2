"""Tests that comparisons of floats in the tests have an absolute tolerance.

With a relative tolerance alone, a comparison with a result near zero depends on the CPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.data import doc_pages
from tests.support.data.tolerances import float32_sum, float64_sum, training_step, training_steps

TESTS = Path(__file__).parents[1]
ABSOLUTE = {"allclose": "atol", "assert_allclose": "atol", "isclose": "atol", "approx": "abs"}
"""Keyword for the absolute tolerance, by function."""
TOLERANCES_FILE = TESTS / "support" / "data" / "tolerances.py"


def find_unsafe_comparisons(source: str) -> Iterator[int]:
    """Yield the lines on which floats are compared without an absolute tolerance."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in ABSOLUTE or _is_tolerance(node.func):
            continue
        if ABSOLUTE[name] not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno


def _is_tolerance(function: ast.expr) -> bool:
    """Return whether this is a method of a Tolerance rather than a function of pytest, NumPy, math or TensorFlow."""
    return (
        isinstance(function, ast.Attribute)
        and not (isinstance(function.value, ast.Name) and function.value.id in ("pytest", "np", "math", "tf"))
        and ast.unparse(function.value) != "np.testing"
    )


def test_comparisons_have_an_absolute_tolerance() -> None:
    places = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != TOLERANCES_FILE
        for line in find_unsafe_comparisons(path.read_text(encoding="utf-8"))
    ]
    assert not places, f"expected atol or abs, or a tolerance of tests/support/data/tolerances.py: {', '.join(places)}"


@pytest.mark.parametrize(
    ("line", "is_unsafe"),
    [
        ("x == pytest.approx(1.0)", True),
        ("x == pytest.approx(1.0, rel=1e-3)", True),
        ("x == pytest.approx(1.0, abs=1e-3)", False),
        ("np.testing.assert_allclose(x, y, rtol=1e-5)", True),
        ("np.testing.assert_allclose(x, y, atol=1e-5)", False),
        ("np.isclose(x, y)", True),
        ("math.isclose(x, y)", True),
        ("x == float64_sum(3).approx(1.0)", False),
        ("near.approx(1.0)", False),
    ],
)
def test_comparison_without_an_absolute_tolerance_is_found(line: str, is_unsafe: bool) -> None:
    assert bool(list(find_unsafe_comparisons(line))) == is_unsafe


@pytest.mark.parametrize("terms", [10, 1_000, 100_000])
def test_sums_in_any_order_are_within_the_tolerance(terms: int) -> None:
    random = np.random.default_rng(terms)
    values = random.normal(size=terms)
    largest = float(np.abs(values).max())
    singles = values.astype(np.float32)
    exact = singles.astype(np.longdouble).sum()
    for ordered in (singles, singles[::-1], np.sort(singles), random.permutation(singles)):
        # cumsum adds terms sequentially, and sum adds pairwise.
        for total in (ordered.sum(), np.cumsum(ordered)[-1]):
            float32_sum(terms, largest).assert_close(total, exact)
    doubles = values.astype(np.longdouble).sum()
    for ordered in (values, values[::-1], np.sort(values)):
        float64_sum(terms, largest).assert_close(np.cumsum(ordered)[-1], doubles)


def test_sum_without_a_term_is_outside_the_tolerance() -> None:
    values = np.random.default_rng(0).normal(size=1_000).astype(np.float32)
    with pytest.raises(AssertionError):
        float32_sum(1_000, 4.0).assert_close(values[:-1].sum(), values.sum())


def test_example_of_the_documentation_runs() -> None:
    [example] = doc_pages.blocks(doc_pages.ROOT / "docs" / "development.md", "python")
    values = np.random.default_rng(0).uniform(-1, 1, (600, 4)).astype(np.float32)
    names = {"left": values, "right": values[:4].T, "product": values @ values[:4].T}
    names |= {"values": values.astype(np.float64), "mean": values[::-1].astype(np.float64).mean()}
    exec(example, {**names, "float32_sum": float32_sum, "float64_sum": float64_sum})  # noqa: S102 - our own page


def test_tolerances_of_training_steps_add_up() -> None:
    one_step, ten_steps = training_step(0.1, 64), training_steps(10, 0.1, 64)
    assert (ten_steps.rtol, ten_steps.atol) == pytest.approx((10 * one_step.rtol, 10 * one_step.atol), abs=1e-12)
    assert one_step.atol < 0.1 * 64 * 1e-6
