"""Verbs that write files to start from: `runner.py scaffold …`."""
