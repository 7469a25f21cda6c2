"""The config of a pipeline: loaded, checked and composed without TensorFlow, so that its errors come at once."""

from pipeline.config.load import Loaded, load
from pipeline.config.model import Config

__all__ = ["Config", "Loaded", "load"]
