"""Transform: TFX's Transform on large record batches, with one trace of the declared operations."""
