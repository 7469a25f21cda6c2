"""What a pipeline is: its config, how it is built from it, and the checks before a run."""
