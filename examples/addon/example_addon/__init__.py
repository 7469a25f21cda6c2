"""An add-on that adds a node, an operation, a metric, a model, an engine, an orchestrator and a verb.

Modules that the config imports do not import TensorFlow or TFX.
"""
