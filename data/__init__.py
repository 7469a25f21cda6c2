"""The example data: where it comes from, and the small programs that bring it here or make more of it."""
