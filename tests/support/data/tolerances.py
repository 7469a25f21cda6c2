"""Tolerances of floating-point comparisons, derived from the dtype and from the number of rounded operations.

Kernels of different CPUs add terms in different orders, and some fuse a multiplication with the addition after it.
Their results therefore differ by the rounding of every operation. That rounding is relative to the operands, not to the
result, because terms of opposite sign cancel. So every tolerance here has an absolute part, and
tests/unit/test_float_comparisons.py refuses a comparison without one.

    float32_sum(4, largest=6.0).assert_close(product, left @ right)
    assert mean == float64_sum(600).approx(values.mean())
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Tolerance:
    """Accepts |actual - expected| up to `atol + rtol * |expected|`.

    Attributes:
      rtol: Relative part.
      atol: Absolute part, in the unit of the compared values.
    """

    rtol: float
    atol: float

    def assert_close(self, actual: Any, expected: Any, message: str = "") -> None:
        """Compare two arrays of the same shape; NaN equals NaN.

        Args:
          actual: Array, tensor or nested list of numbers.
          expected: The same, or a number.
          message: Printed if they differ.

        Raises:
          AssertionError: If an element differs by more than the tolerance.
        """
        np.testing.assert_allclose(actual, expected, rtol=self.rtol, atol=self.atol, err_msg=message)

    def approx(self, expected: Any, *, nan_ok: bool = False) -> Any:
        """Return an object that equals numbers, sequences or dictionaries of numbers within the tolerance.

        pytest accepts the larger of the two parts instead of their sum.
        """
        return pytest.approx(expected, rel=self.rtol, abs=self.atol, nan_ok=nan_ok)


def rounding(operations: int, largest: float = 1.0, dtype: Any = np.float32) -> Tolerance:
    """Return the tolerance of a result of elementwise operations.

    Each operation rounds to half a unit in the last place, and the result and the expected value are both rounded.
    Library functions such as exp and log are off by up to four units, so count four operations for each of them.

    Args:
      operations: Number of rounded operations between the inputs and one element of the result.
      largest: Largest absolute value of an operand or of an intermediate result.
      dtype: Floating-point dtype of the less precise side.

    Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1.
    """
    relative = operations * float(np.finfo(dtype).eps)
    return Tolerance(relative, relative * largest)


def float32_sum(terms: int, largest: float = 1.0) -> Tolerance:
    """Return the tolerance of a float32 sum, mean or inner product that is computed in any order.

    Args:
      terms: Number of terms, for a matrix product the inner dimension.
      largest: Largest absolute value of a term. For a mean, of the mean's terms divided by their number.
    """
    return rounding(2 * terms, largest)


def float64_sum(terms: int, largest: float = 1.0) -> Tolerance:
    """Return the tolerance of a float64 sum, mean or inner product that is computed in any order.

    Args:
      terms: Number of terms.
      largest: Largest absolute value of a term.
    """
    return rounding(2 * terms, largest, np.float64)


def training_step(rate: float, terms: int, largest: float = 1.0) -> Tolerance:
    """Return the tolerance of variables after one step of an optimizer, started from equal variables.

    Args:
      rate: Learning rate, the factor of the gradient's rounding in the variables.
      terms: Number of rows in the batch, whose gradients are added.
      largest: Largest absolute value of a row's gradient.
    """
    gradient = float32_sum(terms, largest)
    return Tolerance(gradient.rtol, rate * gradient.atol + float(np.finfo(np.float32).eps))


def training_steps(steps: int, rate: float, terms: int, largest: float = 1.0) -> Tolerance:
    """Return the tolerance of variables and predictions after several steps.

    The differences of all steps add up. A step hardly amplifies earlier differences as long as the training converges.

    Args:
      steps: Number of steps.
      rate: Learning rate.
      terms: Number of rows in the batch.
      largest: Largest absolute value of a row's gradient; about 1 for an optimizer that divides by the gradient's size.
    """
    step_tolerance = training_step(rate, terms, largest)
    return Tolerance(steps * step_tolerance.rtol, steps * step_tolerance.atol)
