"""Run a pipeline on this machine, each node in a separate process."""
