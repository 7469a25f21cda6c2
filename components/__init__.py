"""What runs inside the nodes of the pipeline: one folder per node, each with its own section of the config."""
