"""Verbs that orchestrators and Beam engines call: `runner.py node …`."""
