"""Ingest: reads the user's files and writes them as tf.Examples in splits (TFX's ExampleGen, columnar)."""
