"""Batch prediction: apply a SavedModel to the rows of files, in a node of the pipeline or on its own."""
