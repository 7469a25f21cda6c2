"""Runs a pipeline on this machine, each node in a process of its own."""
