"""The registry of pushed versions: lists them, verifies them, and changes which ones serve."""
