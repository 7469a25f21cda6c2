"""Ingest: read the user's files and write them as examples in splits; a columnar version of TFX's ExampleGen."""
