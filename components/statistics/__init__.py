"""Statistics: TFX's StatisticsGen with TFDV's combiners on large record batches."""
