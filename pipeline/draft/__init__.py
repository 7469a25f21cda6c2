"""A first config, written from the data: what each column is, what becomes of it, and which model fits its size."""
