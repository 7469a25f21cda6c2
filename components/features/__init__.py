"""Features declared in the config, turned into one graph for training and serving."""
