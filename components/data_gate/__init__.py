"""The gate before training: anomalies in the data stop the run and say why."""
