"""Evaluation: metrics by slice, and the gate that blesses a model or does not."""
