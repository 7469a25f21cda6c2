"""Monitoring: compare served requests with the rows that the served version was trained on."""
