"""The transforms of the feature operations, by what they make of a column; importing the package registers them."""

from components.features.transforms import histories, ids, lists, numbers

__all__ = ["histories", "ids", "lists", "numbers"]
