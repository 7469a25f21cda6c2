"""Serving: a local server that speaks TensorFlow Serving's APIs, and the check of a model before it is pushed."""
