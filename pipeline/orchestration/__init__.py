"""Orchestrators and Beam engines: who runs the nodes of a compiled pipeline, and on what."""
