"""The transforms of the feature operations, by what they make of a column; importing a module registers them."""
