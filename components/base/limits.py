"""Limits of the tables that the pipeline accepts; docs/reference/limits.md gives the reasons."""

MOST_COLUMNS = 10_000
"""Maximum number of columns in the data. In the Parquet files between the nodes, every column is a chunk of every row
group. A chunk takes 180 bytes in the footer and 0.1 ms to write, even if the row group has only a few rows."""
MOST_FEATURE_COLUMNS = 2_000
"""Maximum number of columns that features are computed from. Every such column adds ops to the transform graph, and is
an input of the signature `raw`, which has to be traced, saved and loaded."""
MOST_CLASSES = 10_000
"""Maximum number of classes of a label. A prediction contains the probability and the name of every class. With 10,000
classes, the response to a request with 64 rows contains 640,000 probabilities and as many names."""
