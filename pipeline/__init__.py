"""What the pipeline is, where it runs, and what happened: config, wiring, targets, commands."""
