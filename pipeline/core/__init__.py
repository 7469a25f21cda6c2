"""What all layers need: paths, typed records of runs and nodes, the ML Metadata store."""
