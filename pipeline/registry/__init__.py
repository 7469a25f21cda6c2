"""Pushed versions: which there are, which serve, and how that changes."""
