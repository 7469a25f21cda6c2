"""Verbs on the metadata store and the artifacts in it: `runner.py store …`."""
