"""The transforms of the feature operations, grouped by the form of their output. Importing a module registers them."""

from components.features.transforms import encodings, histories, ids, lists, numbers, vectors

__all__ = ["encodings", "histories", "ids", "lists", "numbers", "vectors"]
