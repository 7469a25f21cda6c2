"""Monitoring: served requests compared with the rows that the version was trained on."""
