"""Alias for one release: pipelines compiled earlier name the Trainer's function by this module."""

from components.trainer.run_fn import run_fn

__all__ = ["run_fn"]
