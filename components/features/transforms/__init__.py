"""The transforms of the feature operations, grouped by the form of their output. Importing a module registers them."""

from components.features.transforms import histories, ids, lists, numbers, vectors

__all__ = ["histories", "ids", "lists", "numbers", "vectors"]
