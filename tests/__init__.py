"""The tests. A package, so that nothing of the same name that an installed library brings is found in its place."""
