"""Verbs that look at runs: `runner.py runs …`."""
