"""Random numbers that depend only on a seed, a name and a key, and not on the numbers drawn before.

Any slice of a simulated table can therefore be made separately: row 7,000,000 does not depend on the rows before it.
The mixing function is taken from the SplitMix64 generator.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

_STEP = np.uint64(0x9E3779B97F4A7C15)


def uniform(seed: int, name: str, keys: Keys) -> Floats:
    """Return a float64 in [0, 1) for each of the uint64 `keys`; numbers with different names are independent."""
    numbers: Floats = (_bits(seed, name, keys) >> np.uint64(11)) * 2.0**-53
    return numbers


def normal(seed: int, name: str, keys: Keys) -> Floats:
    """Return a standard normal float64 for each of the uint64 `keys`, by Box and Muller's transform."""
    bits = _bits(seed, name, keys)
    radius = ((bits >> np.uint64(32)) + 0.5) * 2.0**-32
    angle = (bits & np.uint64(0xFFFFFFFF)) * 2.0**-32
    numbers: Floats = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return numbers


def _bits(seed: int, name: str, keys: Keys) -> Keys:
    """Return 64 random bits per key."""
    stream = _mix(_mix(np.array([seed % 2**64], dtype=np.uint64)) + np.uint64(zlib.crc32(name.encode())))
    return _mix(stream + (keys + np.uint64(1)) * _STEP)


def _mix(bits: Keys) -> Keys:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
