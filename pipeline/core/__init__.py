"""Foundations that all layers of the pipeline use: paths, typed records of runs and nodes, the ML Metadata store."""
