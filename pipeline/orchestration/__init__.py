"""Where a compiled pipeline runs: one module per place."""
