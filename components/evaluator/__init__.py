"""The Evaluator: metrics by slice, and the gate that blesses a model."""
