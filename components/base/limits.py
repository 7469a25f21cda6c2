"""Limits of the tables that the pipeline accepts; docs/reference/limits.md gives the reasons."""

MOST_COLUMNS = 10_000
"""Greatest number of columns of the data. Each column is a chunk in each row group of the Parquet files between the
nodes, which costs 180 bytes of the footer and 0.1 ms to write, however few rows the group has."""
MOST_FEATURE_COLUMNS = 2_000
"""Greatest number of columns that features are made of. Each of them adds operations to the transform graph, and is an
input of the signature `raw`, which is traced, saved and loaded."""
MOST_CLASSES = 10_000
"""Greatest number of classes of a label. Each prediction has a probability and a name for each class: with as many
classes, the answer to one request of 64 rows has 640,000 of both."""
