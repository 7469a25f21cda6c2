"""Batch prediction: a SavedModel applied to the rows of files, as a node of the pipeline or by itself."""
