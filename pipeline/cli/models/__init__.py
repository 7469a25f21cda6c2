"""Verbs on pushed versions and the traffic that they get: `runner.py models …`."""
