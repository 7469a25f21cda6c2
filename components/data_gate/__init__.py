"""The data gate: stops a run before training if its data has anomalies."""
