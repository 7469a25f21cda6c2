"""Feature operations: their settings, and the transform graph that training and serving share."""
