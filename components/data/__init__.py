"""Read and write examples: their files and records, and the conversion of record batches to tf.Examples."""
