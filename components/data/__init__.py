"""Reading and writing examples: the files, their records, and how record batches become tf.Examples."""
