"""Alias for one release; see `managed`."""
