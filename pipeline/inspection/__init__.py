"""What happened: run history, lineage, comparison and reports, read from ML Metadata and run records."""
