"""Measurements, as pairs taken in one run on one machine: `python -m benchmarks.NAME`."""
