"""Loads the config of a pipeline, checks it before a run, and builds the TFX pipeline."""
