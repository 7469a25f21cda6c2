"""Run history, lineage, comparisons and reports, which are read from ML Metadata and the records of runs."""
