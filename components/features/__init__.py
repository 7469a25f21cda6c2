"""Feature operations: their settings, and one transform graph for training and serving."""
