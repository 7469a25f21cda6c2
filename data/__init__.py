"""The example data: small programs that copy or simulate it."""
